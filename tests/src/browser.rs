//! A real Chromium, driven over WebDriver by its own `chromedriver`.
//!
//! Both are packages of Debian's (`tests/run` installs them). They run under the test's mark, so that whatever is left of them
//! goes with the test's world.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{Http, program::in_build, wait_for};

/// From the start of the driver to its line that it listens, and for a page to become what a test waits for.
const LIMIT: Duration = Duration::from_secs(30);
/// What the driver says once it listens.
const LISTENS: &str = "started successfully on port ";
/// The name under which WebDriver tells elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Tallest page that a screenshot shows whole, in CSS pixels.
const TALLEST: u64 = 4000;

/// How a browser looks at pages.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Width of the viewport in CSS pixels.
    pub width: u64,
    /// Device pixels a CSS pixel: 2 at 200% zoom.
    pub scale: u64,
    /// Whether the reader prefers dark pages.
    pub dark: bool,
    /// Whether pages may run scripts.
    pub scripts: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            width: 1200,
            scale: 1,
            dark: false,
            scripts: true,
        }
    }
}

/// A browser with one page. It ends with the test's world, or when it is dropped.
#[derive(Debug)]
pub struct Browser {
    http: Http,
    session: String,
    _driver: Child,
}

impl Browser {
    /// Starts a driver by `surround`ed command, and a browser with a fresh profile in `folder`.
    pub(crate) async fn start(
        surround: impl FnOnce(&mut Command),
        folder: &Path,
        look: Look,
    ) -> Self {
        let mut command = Command::new("chromedriver");
        surround(&mut command);
        command
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut driver = command
            .spawn()
            .expect("chromedriver is missing: install Debian's chromium and chromium-driver");
        let output = driver.stdout.take().expect("standard output is piped");
        let mut lines = BufReader::new(output).lines();
        let port = timeout(LIMIT, async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, port)) = line.split_once(LISTENS) {
                    return Some(port.trim_end_matches('.').to_owned());
                }
            }
            None
        });
        let port = port.await.ok().flatten().expect("chromedriver listens");
        let http = Http::default();
        let base = format!("http://127.0.0.1:{port}/session");
        let capabilities = json!({"capabilities": {"alwaysMatch": capabilities(folder, look)}});
        let started = ask(&http, Method::POST, &base, Some(&capabilities)).await;
        let id = started["sessionId"].as_str().expect("a session");
        let browser = Self {
            session: format!("{base}/{id}"),
            http,
            _driver: driver,
        };
        browser.look(look, 900).await;
        browser
    }

    /// Changes how it looks at pages; whether scripts run stays as it was.
    pub async fn look(&self, look: Look, height: u64) {
        let metrics = json!({"width": look.width, "height": height, "deviceScaleFactor": look.scale, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics)
            .await;
        let scheme = if look.dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &media).await;
    }

    /// Asks the driver, below the session's address.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        ask(&self.http, method, &format!("{}{path}", self.session), body).await
    }

    async fn devtools(&self, command: &str, parameters: &Value) {
        let body = json!({"cmd": command, "params": parameters});
        self.ask(Method::POST, "/goog/cdp/execute", Some(&body))
            .await;
    }

    /// Opens an address and waits until the page is loaded.
    pub async fn open(&self, url: &str) {
        self.ask(Method::POST, "/url", Some(&json!({"url": url})))
            .await;
    }

    /// The page's address.
    pub async fn url(&self) -> String {
        let url = self.ask(Method::GET, "/url", None).await;
        url.as_str().unwrap_or_default().to_owned()
    }

    /// The page's title.
    pub async fn title(&self) -> String {
        let title = self.ask(Method::GET, "/title", None).await;
        title.as_str().unwrap_or_default().to_owned()
    }

    /// Runs a script of the test's in the page, whatever the page's policy is, and answers what it returns.
    pub async fn run(&self, script: &str) -> Value {
        self.run_with(script, json!([])).await
    }

    /// As [`Browser::run`], with `arguments`. A promise is waited for.
    pub async fn run_with(&self, script: &str, arguments: Value) -> Value {
        let body = json!({"script": script, "args": arguments});
        self.ask(Method::POST, "/execute/sync", Some(&body)).await
    }

    /// Waits until a script's expression holds.
    ///
    /// # Panics
    /// When it does not in time; with what the page says.
    pub async fn until(&self, holds: &str) {
        let look = format!("return Boolean({holds})");
        let page = "return document.body.innerText.slice(0, 3000)";
        let waited = timeout(LIMIT, async {
            wait_for(holds, LIMIT * 2, || async {
                (self.run(&look).await == true).then_some(())
            })
            .await;
        });
        if waited.await.is_err() {
            panic!(
                "in vain for {holds}; the page says: {}",
                self.run(page).await
            );
        }
    }

    /// The text of the first element that a selector finds, as it is seen.
    pub async fn text(&self, selector: &str) -> String {
        let element = self.find(selector).await;
        let text = self
            .ask(Method::GET, &format!("/element/{element}/text"), None)
            .await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks on the first element that a selector finds, again if it is being replaced at that moment.
    pub async fn click(&self, selector: &str) {
        wait_for(selector, LIMIT, || async {
            let element = self.try_find(selector).await?;
            let path = format!("/element/{element}/click");
            let clicked = self.ask(Method::POST, &path, Some(&json!({}))).await;
            clicked["error"].is_null().then_some(())
        })
        .await;
    }

    /// Waits until the page has this title. Needs no script.
    pub async fn titled(&self, title: &str) {
        wait_for(title, LIMIT, || async {
            (self.title().await == title).then_some(())
        })
        .await;
    }

    /// Waits until the first element that a selector finds says something. Needs no script of the page's.
    pub async fn says(&self, selector: &str, text: &str) {
        let what = format!("`{text}` in {selector}");
        wait_for(&what, LIMIT, || async {
            let element = self.try_find(selector).await?;
            let path = format!("/element/{element}/text");
            let said = self.ask(Method::GET, &path, None).await;
            said.as_str()?.contains(text).then_some(())
        })
        .await;
    }

    /// Types into the first element that a selector finds.
    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.find(selector).await;
        let body = json!({"text": text});
        self.ask(
            Method::POST,
            &format!("/element/{element}/value"),
            Some(&body),
        )
        .await;
    }

    async fn find(&self, selector: &str) -> String {
        let found = self.try_find(selector).await;
        found.unwrap_or_else(|| panic!("no {selector} on the page"))
    }

    async fn try_find(&self, selector: &str) -> Option<String> {
        let body = json!({"using": "css selector", "value": selector});
        let found = self.ask(Method::POST, "/element", Some(&body)).await;
        found[ELEMENT].as_str().map(str::to_owned)
    }

    /// Presses one key, as from a keyboard: a character, or one of WebDriver's for special keys.
    pub async fn press(&self, key: char) {
        let actions = [("keyDown", key), ("keyUp", key)]
            .map(|(kind, key)| json!({"type": kind, "value": key.to_string()}));
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.ask(Method::POST, "/actions", Some(&body)).await;
    }

    /// What the browser has to say of its pages since it was last asked: violations of their policies, errors of scripts.
    pub async fn complaints(&self) -> Vec<String> {
        let body = json!({"type": "browser"});
        let log = self.ask(Method::POST, "/se/log", Some(&body)).await;
        let said = log.as_array().map(Vec::as_slice).unwrap_or_default();
        said.iter()
            .map(|entry| entry["message"].to_string())
            .collect()
    }

    /// Every cookie that the browser would send to the page's host.
    pub async fn cookies(&self) -> Value {
        self.ask(Method::GET, "/cookie", None).await
    }

    /// Keeps a picture of the whole page below the build directory, for people to look at.
    ///
    /// # Panics
    /// When it cannot be written.
    pub async fn picture(&self, name: &str, look: Look) {
        let height = self
            .run("return document.documentElement.scrollHeight")
            .await
            .as_u64();
        self.look(look, height.unwrap_or(900).clamp(400, TALLEST))
            .await;
        let picture = self.ask(Method::GET, "/screenshot", None).await;
        let folder = pictures();
        fs::create_dir_all(&folder).expect("the build directory is writable");
        let bytes = BASE64_STANDARD.decode(picture.as_str().unwrap_or_default());
        let path = folder.join(format!("{name}.png"));
        fs::write(path, bytes.expect("a picture")).expect("the build directory is writable");
    }

    /// Ends the browser.
    pub async fn close(self) {
        self.ask(Method::DELETE, "", None).await;
    }
}

/// Where pictures are kept.
fn pictures() -> PathBuf {
    in_build("pictures")
}

fn capabilities(folder: &Path, look: Look) -> Value {
    let profile = [OsStr::new("--user-data-dir="), folder.as_os_str()].join(OsStr::new(""));
    let profile = profile.to_str().expect("a path of text");
    let mut arguments = vec![
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ];
    arguments.push(profile);
    let scripts = if look.scripts { 1 } else { 2 };
    let preferences = json!({"profile.managed_default_content_settings.javascript": scripts});
    json!({
        "goog:chromeOptions": {"args": arguments, "prefs": preferences},
        "goog:loggingPrefs": {"browser": "ALL"},
    })
}

async fn ask(http: &Http, method: Method, url: &str, body: Option<&Value>) -> Value {
    let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let headers = [("content-type", "application/json")];
    let reply = http.send(method, url, &headers, bytes, |_| true).await;
    let reply = reply.unwrap_or_else(|lost| panic!("{url}: {}", lost.0));
    reply.json["value"].clone()
}
