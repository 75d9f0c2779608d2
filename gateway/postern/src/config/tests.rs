use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _};

use pretty_assertions::assert_eq;
use tempfile::TempDir;

use super::*;
use crate::cli;

/// A data directory with a configuration, beside a project.
struct World(TempDir);

impl World {
    fn with(text: &str) -> Self {
        let home = tempfile::tempdir().expect("tempdir");
        fs::create_dir_all(home.path().join("project")).expect("project");
        fs::create_dir_all(home.path().join("data")).expect("data");
        fs::write(home.path().join("data").join(FILE), text).expect("file");
        Self(home)
    }

    fn path(&self, below: &str) -> String {
        self.0.path().join(below).display().to_string()
    }

    fn up(&self, more: &[&str]) -> Result<cli::Up, String> {
        let (project, data) = (self.path("project"), self.path("data"));
        let start = ["postern", "up", "--project", &project, "--data-dir", &data];
        match self.parse(&start, more)? {
            Parsed::Run(cli) => {
                let cli::Command::Up(up) = cli.command else {
                    panic!("another command");
                };
                Ok(up)
            }
            Parsed::Dump(text) => panic!("{text}"),
        }
    }

    fn parse(&self, start: &[&str], more: &[&str]) -> Result<Parsed, String> {
        let arguments: Vec<OsString> = start.iter().chain(more).map(OsString::from).collect();
        parse(&arguments).map_err(|problem| match problem {
            Problem::Config(problem) => problem.to_string(),
            Problem::CommandLine(problem) => problem.to_string(),
        })
    }
}

#[test]
fn the_file_says_what_the_command_line_does_not() {
    let world = World::with(
        "mode = \"edit\"\napproval_timeout = 1_200\nsandbox_write = [\"~/.cargo\", \"b:c\"]\nrules = 1\n"
            .replace("rules = 1\n", "sessions = 'ask'\n")
            .as_str(),
    );
    let up = world.up(&[]).expect("read");
    assert_eq!(up.owner.mode.as_str(), "edit");
    assert_eq!(up.owner.approval_timeout, 1200);
    assert!(matches!(up.owner.sessions, cli::Sessions::Ask));
    let home = std::env::home_dir().expect("home");
    assert_eq!(
        up.owner.sandbox.sandbox_write,
        [
            home.join(".cargo"),
            Path::new(&world.path("data")).join("b:c")
        ]
    );
    let up = world
        .up(&["--mode", "full", "--sandbox-write", "/w"])
        .expect("read");
    assert_eq!(up.owner.mode.as_str(), "full");
    assert_eq!(up.owner.sandbox.sandbox_write, [Path::new("/w")]);
    assert_eq!(up.owner.approval_timeout, 1200);
}

#[test]
fn what_the_file_says_of_the_sandbox_counts_as_given() {
    let world = World::with("sandbox_hide = [\"/h\"]\n");
    let up = world.up(&[]).expect("read");
    up.owner.sandbox.demand_none().expect_err("given");
}

#[test]
fn a_fault_is_told_with_its_line() {
    for (text, line, told) in [
        ("mode = \"edit\"\nmode = \"full\"\n", 2, "duplicate key"),
        ("\nmode = \n", 2, ""),
        ("# all\nmode = \"everything\"\n", 2, "--mode"),
        ("mode = 3\n", 1, "--mode"),
        ("mode = true\n", 1, "`mode` is a text or a whole number"),
        ("mode = [\"edit\"]\n", 1, "`mode` is one value"),
        ("sandbox_write = \"/w\"\n", 1, "`sandbox_write` is a list"),
        ("approval_timeout = \"soon\"\n", 1, "--approval-timeout"),
        ("approval_timeout = -1\n", 1, "--approval-timeout"),
        ("approval_timeout = 0x10\n", 1, "`approval_timeout`"),
        ("sandbox-write = []\n", 1, "is written `sandbox_write`"),
        ("moode = \"edit\"\n", 1, "there are project, intention"),
        ("repin = true\n", 1, "`repin` is no option"),
        ("host = \"http://127.0.0.1\"\n", 1, "'postern up'"),
        ("[owner]\nmode = \"edit\"\n", 1, "`owner` is no option"),
        ("\ndata_dir = \"/d\"\n", 0, "`data_dir` cannot stand"),
    ] {
        let world = World::with(text);
        let problem = world.up(&[]).expect_err(text);
        assert!(problem.contains(told), "{text}: {problem}");
        assert!(!problem.contains('\n'), "{problem}");
        let place = format!("{}:{line}: ", world.path("data/postern.toml"));
        assert!(line == 0 || problem.starts_with(&place), "{problem}");
        // Also where the command line would win.
        let problem = world.up(&["--mode", "full", "--approval-timeout=1"]);
        problem.expect_err(text);
    }
}

#[test]
fn a_fault_of_the_command_line_is_not_the_files() {
    let world = World::with("mode = \"everything\"\n");
    let problem = world.up(&["--console", "nowhere"]).expect_err("wrong");
    assert!(problem.contains("--console"), "{problem}");
    assert!(!problem.contains(FILE), "{problem}");
}

#[test]
fn what_is_not_text_or_too_much_of_it_is_refused() {
    let world = World::with("");
    let file = world.path("data/postern.toml");
    fs::write(&file, b"mode = \"\xff\"").expect("file");
    assert!(world.up(&[]).expect_err("bytes").contains("not UTF-8"));
    fs::write(&file, "#".repeat(1024 * 1024 + 1)).expect("file");
    assert!(world.up(&[]).expect_err("long").contains("too large"));
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("folder");
    assert!(world.up(&[]).expect_err("folder").contains("not a file"));
}

#[test]
fn a_file_that_others_write_chooses_nothing() {
    let world = World::with("mode = \"full\"\n");
    let file = world.path("data/postern.toml");
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode");
        let problem = world.up(&[]).expect_err("writable");
        assert!(problem.contains("chmod go-w"), "{problem}");
    }
}

#[test]
fn a_file_in_the_project_chooses_nothing() {
    let world = World::with("");
    let inside = world.path("project/mine.toml");
    fs::write(&inside, "mode = \"full\"\n").expect("file");
    let problem = world.up(&["--config", &inside]).expect_err("inside");
    assert!(problem.contains("lies inside the project"), "{problem}");
    // Neither by a link from where the owner looks for it.
    let file = world.path("data/postern.toml");
    fs::remove_file(&file).expect("removed");
    std::os::unix::fs::symlink(&inside, &file).expect("link");
    let problem = world.up(&[]).expect_err("a link");
    assert!(problem.contains("lies inside the project"), "{problem}");
}

#[test]
fn a_named_file_must_be_there_and_can_tell_everything_of_an_edge() {
    let world = World::with("");
    let problem = world.up(&["--config", "/nowhere"]).expect_err("missing");
    assert!(problem.contains("--config"), "{problem}");
    let file = world.path("edge.toml");
    let text = "host = \"https://agents.example\"\nworkspace = \"0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162\"\n\
        intention = \"i\"\ntoken_file = \"token\"\nproject = \"project\"\ndata_dir = \"data\"\nlisten_none = true\n";
    fs::write(&file, text).expect("file");
    let parsed = world.parse(&["postern", "edge", "--config", &file], &[]);
    let Ok(Parsed::Run(cli)) = parsed else {
        panic!("{parsed:?}");
    };
    let cli::Command::Edge(edge) = cli.command else {
        panic!("another command");
    };
    assert_eq!(edge.token_file, Path::new(&world.path("token")));
    assert_eq!(edge.data_dir, Path::new(&world.path("data")));
    assert!(edge.listen_none);
}

#[test]
fn what_is_in_force_is_told_with_where_it_comes_from_and_comes_to_the_same_again() {
    let world = World::with("mode = \"edit\"\nhide_env = [\"A\"]\n");
    let (project, data) = (world.path("project"), world.path("data"));
    let start = ["postern", "up", "--project", &project, "--data-dir", &data];
    let more = ["--dump-config", "--approval-timeout", "9"];
    let Ok(Parsed::Dump(text)) = world.parse(&start, &more) else {
        panic!("not told");
    };
    for line in [
        "mode = \"edit\" # line 1 of the file",
        "hide_env = [\"A\"] # line 2 of the file",
        "approval_timeout = 9 # command line",
        "sessions = \"open\" # default",
        "# policies is not set",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}\n{text}");
    }
    let again = world.path("again.toml");
    fs::write(&again, &text).expect("file");
    let up = world.parse(&["postern", "up", "--config", &again], &["--dump-config"]);
    let Ok(Parsed::Dump(told)) = up else {
        panic!("{up:?}");
    };
    let values = |text: &str| toml::from_str::<toml::Table>(text).expect("a file");
    assert_eq!(values(&told), values(&text));
    let Ok(Parsed::Dump(told)) = world.parse(&start, &["--dump-config", "--json"]) else {
        panic!("not told");
    };
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        told["mode"],
        serde_json::json!({"value": "edit", "source": "line 1 of the file"})
    );
}

/// The commented file is the documentation: it names every option there is, with the value that holds without it.
#[test]
fn the_commented_file_is_true() {
    let commented = |line: &&str| line.starts_with("# ") && line.contains(" = ");
    let (options, _) = COMMENTED.split_once(TOOLS_PART).expect("the tools");
    let lines: Vec<&str> = options
        .lines()
        .filter(commented)
        .map(|line| &line[2..])
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .collect();
    let values: toml::Table = toml::from_str(&lines.join("\n")).expect("a file");
    let whole = Cli::command();
    let mut known = BTreeSet::new();
    for name in COMMANDS {
        let command = whole.find_subcommand(name).expect("a command");
        let options = command.get_arguments().chain(whole.get_arguments());
        for option in options.filter(|option| !option.is_hide_set()) {
            let id = option.get_id().as_str();
            if NOT_HERE.contains(&id) {
                continue;
            }
            known.insert(id.to_owned());
            let default = option.get_default_values().first();
            let (Some(default), Some(value)) = (default, values.get(id)) else {
                continue;
            };
            let told = value.as_str().map_or(value.to_string(), str::to_owned);
            let is_place = id == "project";
            assert!(is_place || told == default.to_string_lossy(), "{id}");
        }
        let mine = |line: &&&str| {
            let id = line.split(" = ").next().unwrap_or_default();
            let mut options = command.get_arguments().chain(whole.get_arguments());
            options.any(|option| option.get_id() == id) && id != "data_dir"
        };
        let text: Vec<&str> = lines.iter().filter(mine).copied().collect();
        let world = World::with(&text.join("\n"));
        let data = world.path("data");
        let token = world.path("token");
        let parsed = world.parse(&["postern", name, "--data-dir", &data], &[]);
        parsed.unwrap_or_else(|problem| panic!("{problem} {token}"));
    }
    assert_eq!(values.keys().cloned().collect::<BTreeSet<_>>(), known);
}

#[test]
fn the_commented_file_says_nothing_yet() {
    let table: toml::Table = toml::from_str(COMMENTED).expect("a file");
    assert_eq!(table.len(), 0);
}

/// Where the tool servers begin in the commented file.
const TOOLS_PART: &str = "# ---- The owner's tools";

/// The tool servers of a text, as the edge gets them.
fn tool_servers(text: &str) -> Vec<postern_edge::ToolServer> {
    let world = World::with(text);
    world.up(&[]).expect("read").owner.tools
}

#[test]
fn the_tool_servers_of_the_commented_file_and_of_the_readme_can_be_used() {
    let (_, part) = COMMENTED.split_once(TOOLS_PART).expect("the tools");
    let lines = part.lines().filter_map(|line| line.strip_prefix("# "));
    let lines = lines.filter(|line| line.starts_with('[') || line.contains(" = "));
    let text: Vec<&str> = lines.collect();
    let servers = tool_servers(&text.join("\n"));
    let names: Vec<&str> = servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["files", "search"]);
    assert_eq!(servers[0].env["LOG_LEVEL"], "error");
    assert!(servers[0].sandbox_write[0].ends_with("/.cache/x"));
    let token = servers[1].token_file.as_ref().expect("a token");
    assert!(token.is_absolute() && token.ends_with("data/search-token"));
    let readme = include_str!("../../../../README.md");
    let (_, example) = readme.split_once("```toml\n[[tools]]").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    assert!(!tool_servers(&format!("[[tools]]{example}")).is_empty());
}

#[test]
fn a_fault_of_a_tool_server_is_told_with_its_line_and_secrets_are_not_dumped() {
    for (text, told) in [
        ("tools = 1\n", "write each tool server as a table"),
        ("[[tools]]\nname = \"a\"\n", "give a `command` or a `url`"),
        (
            "[[tools]]\nname = \"a\"\nkommand = []\n",
            "unknown field `kommand`",
        ),
        ("[[tools]]\ncommand = [\"x\"]\n", "missing field `name`"),
        (
            "[[tools]]\nname = \"a\"\nurl = \"https://x\"\n[[tools]]\nname = \"a\"\nurl = \"https://y\"\n",
            "two servers are named 'a'",
        ),
    ] {
        let world = World::with(text);
        let problem = world.up(&[]).expect_err(text);
        assert!(problem.contains(told), "{problem}");
        let place = format!("{}:1: ", world.path("data/postern.toml"));
        assert!(problem.starts_with(&place), "{problem}");
    }
    let text = "mode = \"edit\"\n[[tools]]\nname = \"a\"\ncommand = [\"x\", \"--token\", \"secret\"]\nenv = { KEY = \"secret\" }\n[[tools]]\nname = \"b\"\nurl = \"https://x/mcp?k=secret\"\n";
    let world = World::with(text);
    let (project, data) = (world.path("project"), world.path("data"));
    let start = ["postern", "up", "--project", &project, "--data-dir", &data];
    for more in [&["--dump-config"][..], &["--dump-config", "--json"]] {
        let Ok(Parsed::Dump(text)) = world.parse(&start, more) else {
            panic!("not told");
        };
        assert!(text.contains("KEY") && !text.contains("secret"), "{text}");
        if !more.contains(&"--json") {
            // It is a file of the same form.
            let again = world.path("again.toml");
            fs::write(&again, &text).expect("file");
            let read = world.parse(&["postern", "up", "--config", &again], &[]);
            let Ok(Parsed::Run(cli)) = read else {
                panic!("{read:?}");
            };
            let cli::Command::Up(up) = cli.command else {
                panic!("another command");
            };
            assert_eq!(up.owner.tools[0].env.len(), 1);
        }
    }
}
