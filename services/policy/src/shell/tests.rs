use pretty_assertions::assert_eq;

use super::*;

fn programs(text: &str) -> (Vec<String>, bool) {
    let script = Script::read(text);
    (script.programs.into_iter().collect(), !script.is_open)
}

fn names(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_program_is_found_however_it_is_chained() {
    for (text, found) in [
        ("", ""),
        ("# nothing", ""),
        ("git status", "git"),
        ("git status && touch pwn", "git touch"),
        ("git status; touch pwn", "git touch"),
        ("git status | touch pwn", "git touch"),
        ("git status || touch pwn", "git touch"),
        ("git status & touch pwn", "git touch"),
        ("git status\ntouch pwn", "git touch"),
        ("ls $(touch pwn)", "ls touch"),
        ("ls \"$(touch pwn)\"", "ls touch"),
        ("ls `touch pwn`", "ls touch"),
        ("ls \"`touch pwn`\"", "ls touch"),
        ("A=1 B='2 3' git status", "git"),
        ("A=$(touch pwn)", "touch"),
        ("'r'm x", "rm"),
        ("r\\m x", "rm"),
        ("\"rm\" x", "rm"),
        ("/bin/rm x", "rm"),
        ("r\\\nm x", "rm"),
        ("(cd x && make)", "cd make"),
        ("{ a; b; } > out", "a b"),
        ("! a", "a"),
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("if (true) then rm x; fi", "rm true"),
        ("if { a; } then rm x; fi", "a rm"),
        ("while (a) do rm x; done", "a rm"),
        ("if if a; then b; fi then rm x; fi", "a b rm"),
        ("if [ -f x ]; then a; fi", "[ a"),
        ("[ -f x ] && make", "[ make"),
        ("echo $((1 + (2 * 3)))", "echo"),
        ("sudo rm -rf x", "rm sudo"),
        ("env A=1 make -j all", "env make"),
        ("timeout -k 5 60 cargo test", "5 60 cargo test timeout"),
        ("sh -c 'curl u | sh x'", "curl sh"),
        ("bash -euc 'a; b'", "a b bash"),
        ("sh ./build.sh", "sh"),
        (
            "find . -name x -exec rm {} + -exec mv {} y \\;",
            "find mv rm y",
        ),
        ("while a; do b; done < f", "a b"),
        ("for x in rm y; do b $x; done", "b"),
        ("for x do b; done", "b"),
        ("for x\ndo\nb\ndone", "b"),
        ("2>&1 >f a", "a"),
        ("a 2>f; b", "a b"),
        ("echo ${x:-$(b)} ${#x} ${y%/*}", "b echo"),
        ("cat <<E\n$(a)\nE\nb", "a b cat"),
        ("cat <<'E'\n$(a)\nE\nb", "b cat"),
        ("cat <<-E\n\t`a`\n\tE\nb", "a b cat"),
        ("cat <<A <<B\nx\nA\n$(y)\nB\nz", "cat y z"),
        ("echo a#b # $(c)", "echo"),
        ("echo 'a;b' \"c|d\" e\\;f", "echo"),
        ("find . -print0 | xargs -0 rm", "find rm xargs"),
        ("echo \"it's\" 'say \"no\"'", "echo"),
        ("tool <(a) >(b)", "a b tool"),
    ] {
        assert_eq!(programs(text), (names(found), true), "{text}");
    }
}

/// Texts that start something that they do not name, or that not every shell reads alike.
const OPEN: &[&str] = &[
    "$CMD x",
    "\"$CMD\"",
    "${CMD}",
    "$(which rm) x",
    "eval \"$x\"",
    "/bin/r? x",
    "/bin/r[m] x",
    "{rm,-rf,x}",
    "a{b,c} d",
    "echo 'never ends",
    "echo \"never ends",
    "echo $(never ends",
    "echo `never ends",
    "echo ${never",
    "echo $((1 + ",
    "cat <<E\nnever ends",
    "(a",
    "a)",
    "case x in a) b;; esac",
    "A=1 case x in\nrm victim\necho esac",
    ">f case x in\nrm victim\necho esac",
    "(case esac in (esac) rm x;; (case|y|in) z;; esac)",
    "(a) b",
    "for $x in a; do b; done",
    "hash -p /bin/rm ls; ls x",
    "set -x",
    "read x",
    "sudo -s",
    "sudo -u me rm",
    "sudo sh -c 'a'",
    "env -Srm x",
    "env -u sh rm x",
    "xargs -I sh rm sh",
    "script -qc 'rm' f",
    "find . -exec sh -c true \\; -exec rm {} \\;",
    "find . {-exec,rm,{},';'}",
    "sh",
    "echo a | sh",
    "sh <<E\nrm x\nE",
    "sh -s",
    "sh -c",
    "sh -c +e 'rm x'",
    "sh -c -o errexit 'rm x'",
    "bash -o pipefail -c a",
    ". ./x",
    "x='nv rm victim '; e$x=1",
    "PATH=.:$PATH a",
    "BASH_ENV=x a",
    "$\"rm\" x",
    "\"$\\\n(rm x)\"",
    "\"`\\\"rm\\\" x`\"",
    "echo $((x))",
    "echo $[1<<2]",
    "((x<<2))\nrm x\n2",
    "echo ${x@P}",
    "echo ${!x}",
    "echo ${x[$(a)]}",
    "cat <<EF\nx\nE\\\nF\nrm x\nEF",
    "cat <<<x",
    "[[ a ]]",
    "12>f a",
    "f() { rm x; }; f",
    "prlimit --nofile=5 rm x",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    "parallel",
    "trap 'rm x' EXIT",
    "alias a=rm; a x",
    "sudo $CMD",
    "env -S 'rm x'",
    "sh -c \"$CMD\"",
    "sh -c \"rm $x\"",
    "bash $X -c y",
    "find . $EXPRESSION",
    "$'\\162m' x",
    "echo >",
    "a > $file",
    "a > *.txt",
    "function f { rm x; }",
];

#[test]
fn what_runs_and_is_not_in_the_text_leaves_it_open() {
    for text in OPEN {
        assert!(Script::read(text).is_open, "{text}");
    }
}

#[test]
fn redirections_are_found() {
    let script =
        Script::read("a >w1 2>>w2 3>|w3 <>w4 <r1 >&w5 2>&1 0<&3 4>&- 'b' >\"w 6\"; c < 'r 2' &>w7");
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(
        script,
        Script {
            is_particular: false,
            programs: set(&["a", "c"]),
            writes: set(&["w1", "w2", "w3", "w4", "w5", "w 6", "w7"]),
            reads: set(&["r1", "r 2"]),
            is_open: false,
        }
    );
}

#[test]
fn what_is_nested_too_deep_or_names_too_much_is_open() {
    let nested = format!("{}rm{}", "$(".repeat(13), ")".repeat(13));
    assert!(Script::read(&nested).is_open);
    for opening in ["$(", "${x:-", "$((", "(", "`", "\"$(", "case x in a) "] {
        assert!(Script::read(&opening.repeat(50_000)).is_open, "{opening}");
    }
    let many: String = (0..300).map(|number| format!("p{number};")).collect();
    let script = Script::read(&many);
    assert!(script.is_open);
    assert_eq!(script.programs.len(), MAX_NAMES);
}

#[test]
fn any_text_is_read_to_its_end() {
    let pieces = [
        "$(",
        ")",
        "(",
        "`",
        "'",
        "\"",
        "\\",
        "\n",
        "<<E",
        "E\n",
        "${",
        "}",
        "$((",
        "))",
        ";;",
        "case x in ",
        "esac",
        "for ",
        "do ",
        "sh -c ",
        "sudo ",
        "find -exec ",
        "é",
        "=",
        "#",
        ">",
        "<",
        "&",
        "|",
        " ",
        "a",
    ];
    // Every text of three pieces, and long ones of a simple generator.
    for a in pieces {
        for b in pieces {
            for c in pieces {
                let _script = Script::read(&[a, b, c].concat());
            }
        }
    }
    let mut state = 1_u64;
    for _ in 0..2000 {
        let mut text = String::new();
        for _ in 0..40 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        let _script = Script::read(&text);
    }
}

#[test]
fn options_by_which_programs_run_others_are_not_understood() {
    for (text, is_open) in [
        ("git status", false),
        ("git commit -m x", false),
        ("git log --oneline --exclude=a", false),
        ("git -c core.fsmonitor=x status", true),
        ("git -ccore.pager=x log", true),
        ("git --config-env=a=B status", true),
        ("git --exec-p=. status", true),
        ("git rebase -x make", true),
        ("git $X status", true),
        ("/usr/bin/git -c a=b status", true),
        ("tar xf a.tar", false),
        ("tar xf a.tar --to-command=sh", true),
        ("tar -I zstd -xf a", true),
        ("rsync -e ssh a b", true),
        ("sort --compress-prog=x", true),
        ("xargs git", true),
    ] {
        assert_eq!(Script::read(text).is_open, is_open, "{text}");
    }
}

#[test]
fn paths_and_variables_make_a_program_a_particular_one() {
    for (text, is_particular) in [
        ("ls -l", false),
        ("./ls", true),
        ("/usr/bin/ls", true),
        ("A=1 ls", true),
        ("env A=1 ls", true),
        ("git status", true),
        ("true; tar tf x", true),
        ("true && bin/x", true),
        ("ls a/b=c", false),
    ] {
        assert_eq!(Script::read(text).is_particular, is_particular, "{text}");
    }
}
