//! The golden scripts of all protocols. Played again, each gives its written trace. `UPDATE_EXPECT=1` writes them.

#![allow(clippy::disallowed_methods, reason = "scripts are files")]

use expect_test::expect_file;
use quorate_protocols::{REGISTRY, find};
use quorate_sim::script::{COMMANDS, first_difference, play};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns all scripts of all folders, in order.
fn scripts() -> Vec<PathBuf> {
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let mut scripts = Vec::new();
    for folder in folders.map(|folder| folder.unwrap().path().join("scripts")).filter(|path| path.is_dir()) {
        scripts.extend(fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()));
    }
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    scripts.sort();
    scripts
}

fn name(path: &Path) -> String {
    let parts: Vec<_> =
        path.components().rev().take(3).map(|part| part.as_os_str().to_string_lossy()).collect();
    format!("{}/{}", parts[2], parts[0])
}

#[test]
fn every_script_gives_its_written_trace() {
    let mut all = 0;
    for path in scripts() {
        let text = fs::read_to_string(&path).unwrap();
        let played = play(&text, &|name| find(name).copied());
        let played = played.unwrap_or_else(|why| panic!("{}: {why}\n{}", name(&path), why.played));
        if let Some(difference) = first_difference(&text, &played) {
            eprintln!("{}: {difference}", name(&path));
        }
        expect_file![path].assert_eq(&played);
        all += 1;
    }
    assert!(all >= REGISTRY.len(), "{all}");
}

/// The first script of each protocol is the figure of its paper: one block, with the message counts of the protocol's
/// figures.
#[test]
fn every_protocol_has_a_script_of_its_good_case() {
    let texts: Vec<String> = scripts().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for entry in REGISTRY {
        let protocol = format!("protocol={}", entry.spec.name);
        let is_its = |text: &&String| text.split_whitespace().any(|word| word == protocol);
        let first = texts.iter().find(is_its).unwrap_or_else(|| panic!("{protocol} has no script"));
        for count in entry.figures.unwrap().block {
            let expected = format!("expect sent {} {}", count.kind, (count.messages.of)(4));
            assert!(first.contains(&expected), "{protocol}: {expected}");
        }
    }
}

/// Invalid worlds.
const WRONG_WORLDS: &[&str] = &[
    "",
    "run 5ms",
    "world",
    "world protocol=nonsense",
    "world protocol=echo n=four",
    "world protocol=echo size=4",
    "world protocol=echo n=0",
    "world protocol=echo\nworld protocol=echo",
];

/// Invalid commands, the last line of each.
const WRONG_COMMANDS: &[&str] = &[
    "jump",
    "run",
    "run 5",
    "run until",
    "run until dawn",
    "run until height x",
    "run until height 9 within 5ms",
    "run until answered now",
    "client 7 get k",
    "client 0 steal k",
    "client 0 put k",
    "crash",
    "crash 4",
    "crash 1 keep calm",
    "start r9",
    "cut 0 1",
    "cut 0 | 7",
    "drop 0 1 commit",
    "drop 0 -> 9",
    "delay r0 -> r1",
    "drop * -> * comit\nclient 0 put k v\nrun until answered",
    "twin 0 to 1 | 2",
    "show",
    "expect peace",
    "expect height 7 on 0 1",
    "expect answered 1",
    "expect down 2",
    "expect sent vote 3",
];

/// A script that cannot be played reports the reason and the place.
#[test]
fn faults_of_a_script_are_reported() {
    let worlds = WRONG_WORLDS.iter().map(|world| (*world).to_owned());
    let commands = WRONG_COMMANDS.iter().map(|rest| format!("world protocol=echo\n{rest}"));
    let mut said = String::new();
    for script in worlds.chain(commands) {
        let why = play(&script, &|name| find(name).copied()).expect_err(&script);
        let (last, what) = (script.lines().last().unwrap_or_default(), why.to_string());
        let _ = writeln!(said, "{last}\n    {}", what.lines().next().unwrap_or_default());
    }
    expect_file!["wrong-scripts.txt"].assert_eq(&said);
}

/// The page about scripts lists all commands.
#[test]
fn commands_of_scripts_are_documented() {
    let example = HEAD.split("```").nth(1).and_then(|code| code.strip_prefix("text\n")).unwrap();
    assert_eq!(play(example, &|name| find(name).copied()).as_deref(), Ok(example));
    let mut page = HEAD.to_owned();
    for (usage, says) in COMMANDS {
        let _ = writeln!(page, "* `{usage}`: {says}.");
    }
    expect_file!["../../../../docs/scripts.md"].assert_eq(&page);
}

const HEAD: &str = "\
# Golden scripts

A script is a text file with commands to a small simulated world, each followed by its trace. The protocols' scripts are in
`crates/protocols/src/*/scripts/`; the first of each protocol is the figure of its paper. The tests play all of them, and
every trace has to be equal to the written one.

* `quorate sim --script FILE` plays a script and prints it; with `--update` it writes the trace into the file.
* `UPDATE_EXPECT=1 cargo test -p quorate-protocols --test simulated scripts` does that for all of them, and for this page.

```text
# Text after a # is a comment.
world protocol=echo n=4 delay=1ms
       0.000  all stand         v0 h1
client 0 put k v
       0.000  c0  asks          put k v
run 1ms
       1.000  r0  -> all        propose          v0 h2   A
       1.000  r0  -> all        vote             v0 h2   A
expect sent vote 3
```

Indented lines are the trace. Its columns are: milliseconds since the script began; the actor; the event, or the receivers
of a message (`->`, or `-x` for a lost and `-|` for a held message); the kind of the message; its view and height; a letter
for the block. A line is written when a message leaves. Host messages are left out unless a `show` names them. So are
messages that belong to no block (`not_counted` in the protocol's figures). An `expect` has to hold whatever the trace is:
rewriting a script does not make it true.

## Commands

";
