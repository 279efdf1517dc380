//! A cluster of real processes: run, killed, started again, stopped.

use crate::support::{Ran, command, quorate};
use crate::synchronous;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(90);

/// `quorate up` in the background.
struct Up {
    child: Child,
    lines: Receiver<String>,
}

impl Up {
    fn start(dir: &Path, more: &[&str]) -> Self {
        Self::run(command(&[&["up", "--dir", dir.to_str().unwrap()], more].concat()))
    }

    fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (say, lines) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let say_err = say.clone();
        thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| say.send(line))
        });
        thread::spawn(move || {
            BufReader::new(err).lines().map_while(Result::ok).try_for_each(|line| say_err.send(line))
        });
        Self { child, lines }
    }

    /// Waits for a line with this beginning.
    fn wait_for(&self, start: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else { panic!("no {start:?} among {seen:?}") };
            if line.starts_with(start) {
                return line;
            }
            seen.push(line);
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(self.child.id()), signal).unwrap();
    }

    /// Waits for the end of the program, and returns its exit code and the remaining lines.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        let lines = self.lines.iter().collect();
        (self.child.wait().unwrap().code(), lines)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// Processes with a configuration below `dir`, by node.
fn nodes(dir: &Path) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        if words.get(1).is_some_and(|word| word == "node") {
            let config = words.iter().find(|word| Path::new(word).starts_with(dir));
            let name = config.and_then(|config| Path::new(config).parent()?.file_name()?.to_str());
            found.extend(name.map(|name| (name.to_owned(), id)));
        }
    }
    found.sort();
    found
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn kv(&self, args: &[&str]) -> Ran {
        let file = self.dir().join("cluster.toml");
        quorate(&[&["kv", "--cluster", file.to_str().unwrap(), "--timeout", "60s"], args].concat())
    }

    /// Checks that the answer is no: nothing on standard output, and exit code 3.
    fn denies(&self, args: &[&str], why: &str) {
        let ran = self.kv(args);
        let expected = (Some(3), "", format!("error: {why}\n"));
        assert_eq!((ran.code, ran.out.as_str(), ran.err), expected, "{args:?}");
    }

    fn says(&self, args: &[&str], expected: &str) {
        let ran = self.kv(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), expected), "{args:?}: {}", ran.err);
    }
}

/// Checks that bytes that are no text pass through files and pipes, and that a person sees them escaped.
fn bytes_come_back_as_they_went(place: &Place) {
    let (file, back) = (place.folder.path().join("value"), place.folder.path().join("back"));
    let bytes: Vec<u8> = (0..=250u8).cycle().take(200_000).collect();
    fs::write(&file, &bytes).unwrap();
    let (file, back_name) = (file.to_str().unwrap(), back.to_str().unwrap());
    place.says(&["put", "bytes", "--file", file], "ok\n");
    place.says(&["get", "bytes", "--file", back_name], "");
    assert!(fs::read(&back).unwrap() == bytes, "not the same bytes");
    let config = place.dir().join("cluster.toml");
    let mut put = command(&["kv", "--cluster", config.to_str().unwrap(), "put", "a\n\x1b", "-"]);
    let mut put = put.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"\xff\0\n").unwrap();
    assert_eq!(put.wait_with_output().unwrap().stdout, b"ok\n");
    let get = ["kv", "--cluster", config.to_str().unwrap(), "get", "a\n\x1b", "--file", "-"];
    assert_eq!(command(&get).output().unwrap().stdout, b"\xff\0\n");
    place.says(&["scan", "--prefix", "a\n"], "a\\n\\u{1b}\t\\xff\\u{0}\\n\n");
    for key in ["bytes", "a\n\x1b"] {
        place.says(&["del", key], "ok\n");
    }
    place.denies(&["get", "bytes", "--file", back_name], "the key \"bytes\" has no value");
    assert!(fs::read(&back).unwrap() == bytes, "a file is written only with a value");
}

#[test]
fn cluster_serves_survives_a_kill_and_continues_after_a_stop() {
    let place = Place::new();
    let up = Up::start(&place.dir(), &[]);
    up.wait_for("cluster ");
    assert_eq!(up.wait_for("ready"), "ready");
    place.says(&["put", "a", "1"], "ok\n");
    place.says(&["get", "a"], "1\n");
    place.denies(&["get", "none"], "the key \"none\" has no value");
    place.says(&["put", "words", "(no value)"], "ok\n");
    place.says(&["get", "words"], "(no value)\n");
    place.says(&["del", "words"], "ok\n");
    place.says(&["del", "words"], "ok\n");
    place.says(&["cas", "a", "1", "2"], "ok\n");
    place.denies(
        &["cas", "a", "1", "3"],
        "the key \"a\" does not have the expected value: nothing was changed",
    );
    place.denies(&["cas", "--absent", "a", "3"], "the key \"a\" has a value: nothing was changed");
    bytes_come_back_as_they_went(&place);
    place.says(&["cas", "--absent", "b", "5"], "ok\n");
    place.says(&["incr", "b", "-7"], "-2\n");
    place.says(&["incr", "new"], "1\n");
    place.says(&["put", "gone", "x"], "ok\n");
    place.says(&["del", "gone"], "ok\n");
    place.says(&["scan"], "a\t2\nb\t-2\nnew\t1\n");
    place.says(
        &["scan", "--prefix", "b", "--json"],
        "{\"entries\":[{\"key\":\"b\",\"value\":\"-2\"}],\"kind\":\"scan\"}\n",
    );
    place.says(&["get", "a", "--json"], "{\"key\":\"a\",\"kind\":\"get\",\"result\":\"2\"}\n");
    let wrong = place.kv(&["incr", "gone-again", "9223372036854775807"]);
    assert_eq!(wrong.code, Some(0), "{}", wrong.err);
    let overflow = place.kv(&["incr", "gone-again"]);
    assert_eq!((overflow.code, overflow.err.as_str()), (Some(1), "error: the number would overflow\n"));

    let before = nodes(&place.dir());
    assert_eq!(
        before.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["node0", "node1", "node2", "node3"]
    );
    kill_process(pid(before[3].1), Signal::KILL).unwrap();
    let line = up.wait_for("node 3 has ended");
    assert!(line.starts_with("node 3 has ended (signal 9, SIGKILL): somebody killed it"), "{line}");
    place.says(&["put", "after", "death"], "ok\n");

    up.signal(Signal::INT);
    let (code, said) = up.end();
    assert_eq!((code, said), (Some(0), Vec::new()), "a stop that was asked for is no failure");
    assert_eq!(nodes(&place.dir()), []);

    let up = Up::start(&place.dir(), &["--n", "4", "--protocol", "pbft", "--durability", "fsync"]);
    up.wait_for("ready");
    place.says(&["get", "after"], "death\n");
    place.says(&["get", "a"], "2\n");
    up.signal(Signal::TERM);
    assert_eq!(up.end().0, Some(0));
}

/// The demo is stopped while nodes start, and while load runs.
#[test]
fn stopped_demo_leaves_no_process_and_no_folder() {
    for (begun, signal) in [("starting", Signal::INT), ("  1.", Signal::TERM)] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = command(&["demo", "--seconds", "3600"]);
        demo.env("TMPDIR", folder.path());
        let demo = Up::run(demo);
        demo.wait_for(begun);
        demo.signal(signal);
        let deadline = Instant::now() + PATIENCE;
        let (code, said) = demo.end();
        assert!(Instant::now() < deadline, "it took too long to stop: {said:?}");
        assert_eq!(code, Some(1), "{said:?}");
        assert_eq!(said.last().map(String::as_str), Some("error: stopped"), "{said:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is gone");
        assert_eq!(nodes(folder.path()), [], "no process is left");
    }
}

#[test]
fn nodes_end_with_the_program_that_started_them() {
    let place = Place::new();
    let up = Up::start(&place.dir(), &["--n", "1"]);
    up.wait_for("ready");
    assert_eq!(nodes(&place.dir()).len(), 1);
    up.signal(Signal::KILL);
    wait_until("nodes live on", || nodes(&place.dir()).is_empty());
}

#[test]
fn missing_cluster_is_reported() {
    let place = Place::new();
    let made = quorate(&["testnet", "--out", place.dir().to_str().unwrap(), "--base-port", "1"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let file = place.dir().join("cluster.toml");
    let ran = quorate(&["kv", "--cluster", file.to_str().unwrap(), "--timeout", "200ms", "get", "k"]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{}", ran.err);
    assert!(ran.err.starts_with("error: no answer within 200ms"), "{}", ran.err);
    let other = place.dir().join("node0/replica.key");
    let ran = quorate(&["kv", "--cluster", "none.toml", "--key", other.to_str().unwrap(), "get", "k"]);
    ran.refuses("no cluster", &["none.toml: (file): cannot be read"]);
}

#[test]
fn flags_that_differ_from_the_folder_are_refused() {
    let place = Place::new();
    let dir = place.dir();
    let made = quorate(&["testnet", "--out", dir.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    for (flag, value, says) in [
        ("--n", "7", "4 replicas"),
        ("--protocol", "echo", "pbft"),
        ("--durability", "os", "fsync"),
        ("--link-auth", "plain", "tls"),
        ("--client-auth", "none", "signature"),
    ] {
        let ran = quorate(&["up", "--dir", dir.to_str().unwrap(), flag, value]);
        ran.refuses(flag, &[&format!("{flag} {value} conflicts with"), &format!("which has {says}")]);
    }
}

#[test]
fn unprotected_cluster_needs_the_insecure_flag() {
    let place = Place::new();
    let dir = place.dir();
    let ran = quorate(&["up", "--dir", dir.to_str().unwrap(), "--client-auth", "none"]);
    ran.refuses("--client-auth none", &["--insecure"]);
    assert!(!dir.exists(), "nothing was made");
    let up = Up::start(&dir, &["--client-auth", "none", "--insecure"]);
    up.wait_for("ready");
    up.signal(Signal::INT);
    assert_eq!(up.end().0, Some(0));
    quorate(&["up", "--dir", dir.to_str().unwrap()]).refuses("again", &["genesis.client_auth", "--insecure"]);
    let up = Up::start(&dir, &["--insecure"]);
    up.wait_for("ready");
    place.says(&["put", "a", "1"], "ok\n");
}

#[test]
fn running_cluster_cannot_be_started_again() {
    let place = Place::new();
    let up = Up::start(&place.dir(), &["--n", "1"]);
    up.wait_for("ready");
    let again = quorate(&["up", "--dir", place.dir().to_str().unwrap()]);
    assert_eq!(again.code, Some(2), "{}", again.err);
    assert_eq!(again.err.lines().count(), 1, "{}", again.err);
    assert!(again.err.contains("in use by another process"), "{}", again.err);
    place.says(&["put", "still", "serves"], "ok\n");
}

#[test]
fn port_taken_after_the_first_start_is_named() {
    let place = Place::new();
    let up = Up::start(&place.dir(), &["--n", "1"]);
    up.wait_for("ready");
    up.signal(Signal::INT);
    assert_eq!(up.end().0, Some(0));
    let text = fs::read_to_string(place.dir().join("node0/node.toml")).unwrap();
    let line = text.lines().find(|line| line.starts_with("listen_clients")).unwrap();
    let address = line.split('"').nth(1).unwrap();
    let _taken = std::net::TcpListener::bind(address).unwrap();
    let ran = quorate(&["up", "--dir", place.dir().to_str().unwrap()]);
    ran.refuses("taken", &[address, "taken by another program"]);
}

#[test]
fn synchronous_replicas_doubt_while_links_are_cut_and_recover_afterwards() {
    synchronous::replicas_doubt_while_links_are_cut_and_recover_afterwards();
}

/// The nodes end as on SIGTERM, and so does the command that has started them.
#[test]
fn cluster_that_allows_it_is_stopped_by_its_admin() {
    let place = Place::new();
    let dir = place.dir();
    let up = Up::start(&dir, &["--allow-stop"]);
    assert_eq!(up.wait_for("ready"), "ready");
    place.says(&["put", "a", "1"], "ok\n");
    let stopped = quorate(&["stop", "--cluster", dir.to_str().unwrap()]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.err);
    let (code, lines) = up.end();
    assert_eq!(code, Some(0), "{lines:?}");
    assert_eq!(nodes(&dir), []);

    // Without the option the folder keeps its setting; a folder without the setting conflicts with the option.
    let up = Up::start(&dir, &[]);
    assert_eq!(up.wait_for("ready"), "ready");
    place.says(&["get", "a"], "1\n");
    let admin = dir.join("clients/admin.key");
    let file = ["--admin-key", admin.to_str().unwrap()];
    assert_eq!(quorate(&[&["stop", "--cluster", dir.to_str().unwrap()], &file[..]].concat()).code, Some(0));
    assert_eq!(up.end().0, Some(0));
    let plain = crate::support::Cluster::new(&[]);
    let ran = quorate(&["up", "--dir", plain.path("").to_str().unwrap(), "--allow-stop"]);
    ran.refuses("a folder without the setting", &["--allow-stop conflicts with", "allow_stop = false"]);
    let ran = quorate(&["stop", "--cluster", dir.to_str().unwrap(), "--admin-key", "/nonexistent"]);
    ran.refuses("no key", &["/nonexistent"]);
}
