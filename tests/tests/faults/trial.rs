//! One call of every tool with an effect: what it is to change, and what the disk must say for each outcome.

use std::{fs, time::Duration};

use http::Method;
use postern_tests::{Answer, text_of, wait_for};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::rig::{Call, RECOVERY_LIMIT, Rig, content, count};

/// What is tried.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// `workspace_write` of a new file below directories that are missing.
    New,
    /// `workspace_write` over a file.
    Over,
    Patch,
    Delete,
    /// A new file that the owner has to approve.
    Approved,
    Ask,
    Exec,
    Input,
    Stop,
}

pub(crate) const FILES: &[Kind] = &[
    Kind::New,
    Kind::Over,
    Kind::Patch,
    Kind::Delete,
    Kind::Approved,
    Kind::Ask,
];
pub(crate) const COMMANDS: &[Kind] = &[Kind::Exec, Kind::Input, Kind::Stop];

/// Time between two looks of the owner at his inbox.
const OWNER_LOOKS: Duration = Duration::from_millis(10);
/// Bytes of a file that is written over another: several pages, so that half of it could be told.
const LARGE: usize = 100_000;

/// A file before and after, absent where there is none.
#[derive(Clone, Debug)]
struct Change {
    path: String,
    before: Option<String>,
    after: Option<String>,
}

/// A call and its effect.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) kind: Kind,
    pub(crate) call: Call,
    number: u32,
    /// Where the effect is one on a file.
    change: Option<Change>,
}

/// How the first try was disturbed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hurt {
    /// The exec worker or a wrapper was killed: what only they knew may be lost.
    pub(crate) worker: bool,
}

impl Change {
    /// What calls of this kind do to a file of their own.
    fn of(kind: Kind, number: u32) -> Option<Self> {
        let (path, before, after) = match kind {
            Kind::New | Kind::Approved => {
                let path = format!("new-{number}/deep/file.txt");
                (path, None, Some(format!("new {number}\n")))
            }
            Kind::Over => {
                let after = number.to_string().repeat(LARGE);
                (
                    format!("over-{number}.txt"),
                    Some(format!("old {number}\n")),
                    Some(after),
                )
            }
            Kind::Patch => {
                let before = format!("a\nold {number}\nz\n");
                let after = format!("a\npatched {number}\nz\n");
                (format!("patch-{number}.txt"), Some(before), Some(after))
            }
            Kind::Delete => (
                format!("delete-{number}.txt"),
                Some(format!("gone {number}\n")),
                None,
            ),
            Kind::Ask | Kind::Exec | Kind::Input | Kind::Stop => return None,
        };
        Some(Self {
            path,
            before,
            after,
        })
    }

    fn arguments(&self, kind: Kind, number: u32) -> Value {
        let revision = self
            .before
            .as_ref()
            .map(|text| Sha256::of(text.as_bytes()).to_string());
        let mut arguments = json!({"path": self.path, "expectedSha256": revision});
        match &self.after {
            Some(_) if kind == Kind::Patch => {
                arguments["oldText"] = format!("old {number}").into();
                arguments["newText"] = format!("patched {number}").into();
            }
            Some(after) => arguments["content"] = after.as_str().into(),
            None => {}
        }
        arguments
    }
}

impl Trial {
    /// Makes what the call is to change.
    pub(crate) async fn prepare(rig: &mut Rig, kind: Kind) -> Self {
        let number = rig.number();
        let conversation = format!("conversation-{number}");
        let change = Change::of(kind, number);
        let arguments = match &change {
            Some(change) => {
                if let Some(before) = &change.before {
                    fs::write(rig.path(&change.path), before).expect("the project is writable");
                }
                change.arguments(kind, number)
            }
            None => arguments(rig, kind, number, &conversation).await,
        };
        Self {
            kind,
            call: Call {
                id: format!("call-{number}"),
                conversation,
                tool: tool(kind),
                arguments,
            },
            number,
            change,
        }
    }

    /// Points that a call of this kind reaches after it was answered, or may reach then.
    pub(crate) const fn late_points(&self) -> &'static [&'static str] {
        const COMMAND: &[&str] = &[
            "edge.send.after",
            "exec.wrapper.ended",
            "exec.end.before",
            "exec.end.after",
        ];
        if matches!(self.kind, Kind::Exec) {
            COMMAND
        } else {
            &["edge.send.after"]
        }
    }

    /// Whether the owner has to say something.
    pub(crate) const fn needs_owner(&self) -> bool {
        matches!(self.kind, Kind::Ask | Kind::Approved)
    }

    /// What the owner does, for as long as somebody waits for the call: he answers what is in his inbox. Without the program
    /// there is no inbox.
    pub(crate) async fn attend(&self, rig: &Rig) {
        if !self.needs_owner() {
            std::future::pending::<()>().await;
        }
        let owner = rig.door.owner();
        let decision = if self.kind == Kind::Ask {
            json!({"decision": "answer", "answer": self.reply()})
        } else {
            json!({"decision": "approve"})
        };
        loop {
            let inbox = owner.try_send(Method::GET, "/owner/v1/inbox", None).await;
            let inbox = inbox.map_or(Value::Null, |reply| reply.json);
            for item in inbox["items"].as_array().into_iter().flatten() {
                if item["callId"] == self.call.id.as_str() {
                    let path = format!("/owner/v1/inbox/{}/decision", text_of(item, "id"));
                    // The program may be killed over it; then the item is in the inbox again.
                    let _again = owner.try_send(Method::POST, &path, Some(&decision)).await;
                }
            }
            tokio::time::sleep(OWNER_LOOKS).await;
        }
    }

    fn reply(&self) -> String {
        format!("{}!", self.number)
    }

    /// Asks for the outcome, with the owner at hand.
    pub(crate) async fn outcome(&self, rig: &mut Rig) -> Answer {
        if !self.needs_owner() {
            return rig.outcome(&self.call).await;
        }
        loop {
            let answer = {
                let attended = self.attend(rig);
                let asked = rig.send(&self.call);
                tokio::select! {
                    answer = asked => answer,
                    () = attended => unreachable!("the owner stays"),
                }
            };
            match answer {
                Ok(answer) if !matches!(answer.code(), "UNAVAILABLE" | "BUSY") => return answer,
                Ok(_) => {}
                Err(_) if rig.door.program.runs() => {}
                Err(_) => {
                    rig.kills += 1;
                    rig.restart().await;
                }
            }
        }
    }

    /// The file is the old or the new one, whole.
    pub(crate) fn check_whole(&self, rig: &Rig, context: &str) {
        if let Some(change) = &self.change {
            let now = content(&rig.path(&change.path));
            assert!(
                now == change.before || now == change.after,
                "a torn file: {context}"
            );
        }
    }

    /// Compares an outcome with the disk.
    pub(crate) async fn check(&self, rig: &Rig, outcome: &Answer, hurt: Hurt, context: &str) {
        if let Some(change) = &self.change {
            let expected = match outcome.code() {
                "" => &change.after,
                "NOT_APPLIED" => &change.before,
                _ => panic!("{context}"),
            };
            assert_eq!(content(&rig.path(&change.path)), *expected, "{context}");
            return;
        }
        match self.kind {
            Kind::Ask => {
                assert_eq!(outcome.structured["answer"], self.reply(), "{context}");
            }
            Kind::Exec => self.check_exec(rig, outcome, hurt, context).await,
            Kind::Input => self.check_input(rig, outcome, hurt, context).await,
            Kind::Stop => self.check_stop(rig, outcome, hurt, context).await,
            Kind::New | Kind::Over | Kind::Patch | Kind::Delete | Kind::Approved => {
                unreachable!("a change of a file")
            }
        }
    }

    async fn check_exec(&self, rig: &Rig, outcome: &Answer, hurt: Hurt, context: &str) {
        let (log, line) = (rig.path("runs.txt"), self.number.to_string());
        match outcome.code() {
            "" => {
                let command = text_of(&outcome.structured, "commandId");
                let finished = rig.agent(&self.call.conversation).follow(&command).await;
                let runs = count(&log, &line);
                let status = text_of(&finished.last, "status");
                match status.as_str() {
                    "exited" => {
                        assert_eq!(runs, 1, "{context}");
                        assert_eq!(finished.output, format!("done-{line}\n"), "{context}");
                    }
                    "lost" if hurt.worker => assert!(runs <= 1, "{context}"),
                    _ => panic!("{status}: {context}"),
                }
            }
            "NOT_APPLIED" => assert_eq!(count(&log, &line), 0, "{context}"),
            "UNCERTAIN" if hurt.worker => assert!(count(&log, &line) <= 1, "{context}"),
            _ => panic!("{context}"),
        }
    }

    async fn check_input(&self, rig: &Rig, outcome: &Answer, hurt: Hurt, context: &str) {
        let (log, line) = (
            rig.path(&format!("in-{}.txt", self.number)),
            self.number.to_string(),
        );
        match outcome.code() {
            "" if hurt.worker => assert!(count(&log, &line) <= 1, "{context}"),
            "" => {
                wait_for("what was typed", RECOVERY_LIMIT, || async {
                    (count(&log, &line) > 0).then_some(())
                })
                .await;
                assert_eq!(count(&log, &line), 1, "{context}");
            }
            "NOT_APPLIED" => assert_eq!(count(&log, &line), 0, "{context}"),
            // The command died with its worker before anything was typed.
            "COMMAND_ENDED" if hurt.worker => assert_eq!(count(&log, &line), 0, "{context}"),
            "UNCERTAIN" if hurt.worker => assert!(count(&log, &line) <= 1, "{context}"),
            _ => panic!("{context}"),
        }
    }

    async fn check_stop(&self, rig: &Rig, outcome: &Answer, hurt: Hurt, context: &str) {
        let command = text_of(&self.call.arguments, "commandId");
        let agent = rig.agent(&self.call.conversation);
        let status = text_of(&agent.poll(&command, 0).await, "status");
        match outcome.code() {
            "" if hurt.worker => assert!(status == "stopped" || status == "lost", "{context}"),
            "" => assert_eq!(status, "stopped", "{context}"),
            "NOT_APPLIED" if hurt.worker => assert!(status != "stopped", "{context}"),
            "NOT_APPLIED" => assert_eq!(status, "running", "{context}"),
            "UNCERTAIN" if hurt.worker => {}
            _ => panic!("{context}"),
        }
    }

    /// Ends what the trial has running, so that commands do not pile up.
    pub(crate) async fn tidy(&self, rig: &Rig) {
        if matches!(self.kind, Kind::Input | Kind::Stop) {
            let command = text_of(&self.call.arguments, "commandId");
            let agent = rig.agent(&self.call.conversation);
            wait_for("the end of a command", RECOVERY_LIMIT, || async {
                let arguments = json!({"commandId": command});
                let answer = agent.call("workspace_stop", arguments).await;
                (!answer.is_error).then_some(())
            })
            .await;
        }
    }
}

/// The arguments of a call that changes no file, and the command that it is about.
async fn arguments(rig: &Rig, kind: Kind, number: u32, conversation: &str) -> Value {
    if kind == Kind::Exec {
        let command = format!("echo {number} >> runs.txt; echo done-{number}");
        return json!({"command": command});
    }
    if kind == Kind::Ask {
        return json!({"question": format!("{number}?")});
    }
    if kind == Kind::Stop {
        let command = rig.command(conversation, "echo up; sleep 600").await;
        return json!({"commandId": command});
    }
    let reader = format!("echo up; while read -r line; do echo \"$line\" >> in-{number}.txt; done");
    let command = rig.command(conversation, &reader).await;
    json!({"commandId": command, "text": format!("{number}\n")})
}

const fn tool(kind: Kind) -> &'static str {
    match kind {
        Kind::New | Kind::Over | Kind::Approved => "workspace_write",
        Kind::Patch => "workspace_patch",
        Kind::Delete => "workspace_delete",
        Kind::Ask => "workspace_ask",
        Kind::Exec => "workspace_exec",
        Kind::Input => "workspace_input",
        Kind::Stop => "workspace_stop",
    }
}

/// The state that a receipt must have for an outcome.
pub(crate) fn state_of(outcome: &Answer) -> &'static str {
    match outcome.code() {
        "UNCERTAIN" => "uncertain",
        _ => "completed",
    }
}
