//! Tests with a script in the place of the program: it runs the file `does` in the node's folder.

use super::*;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const IDS: [ReplicaId; 3] = [ReplicaId(0), ReplicaId(1), ReplicaId(2)];

struct ScriptedNodes {
    folder: TempDir,
    processes: Processes,
}

/// Writes a program that runs the file `does` in the folder of a node's configuration, which is `$3`.
pub(crate) fn program(folder: &Path) -> PathBuf {
    let program = folder.join("program");
    // Another process writes the file: while this one has it open for writing, a child that another test forks could not
    // execute it.
    let text = "#!/bin/sh\n. \"$(dirname \"$3\")/does\"\n";
    let write = "printf %s \"$1\" > \"$2\" && chmod 700 \"$2\"";
    let status = Command::new("sh").args(["-c", write, "sh", text]).arg(&program).status().unwrap();
    assert!(status.success());
    program
}

/// Returns nodes that run these lines of shell.
fn stage(does: [&str; 3]) -> ScriptedNodes {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    for (id, does) in IDS.iter().zip(does) {
        let node = node_folder(folder.path(), *id);
        fs::create_dir(&node).unwrap();
        fs::write(node.join("does"), does).unwrap();
    }
    let processes = Processes::new(program, folder.path(), IDS, false);
    ScriptedNodes { folder, processes }
}

impl ScriptedNodes {
    fn next(&mut self) -> Event {
        self.processes.next_event(Instant::now().checked_add(PATIENCE)).expect("nothing happens")
    }

    fn does(&self, id: ReplicaId, does: &str) {
        fs::write(node_folder(self.folder.path(), id).join("does"), does).unwrap();
    }
}

/// Serves until it is killed: reads from a pipe without a writer.
const SERVE: &str = "echo ready; mkfifo \"$3.pipe\"; exec cat \"$3.pipe\"";
/// The same, for a second start.
const SERVE_AGAIN: &str = "echo ready; exec cat \"$3.pipe\"";

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn nodes_serve_are_killed_and_start_again() {
    let mut stage = stage([SERVE, SERVE, SERVE]);
    stage.processes.start_all().unwrap();
    stage.processes.wait_ready(&IDS, PATIENCE).unwrap();
    assert!(stage.processes.all_ready());
    let pids: Vec<u32> = IDS.iter().map(|id| stage.processes.pid(*id).unwrap()).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));

    stage.processes.kill(IDS[1]).unwrap();
    assert!(!is_alive(pids[1]) && is_alive(pids[0]));
    assert_eq!((stage.processes.running(), stage.processes.pid(IDS[1])), (2, None));
    assert!(!stage.processes.is_ready(IDS[1]));

    stage.does(IDS[1], SERVE_AGAIN);
    stage.processes.start(IDS[1]).unwrap();
    // Neither the end of the first start nor its `ready` counts.
    assert_eq!(stage.next(), Event::Ready(IDS[1]));
    stage.processes.start(IDS[1]).unwrap();
    assert_eq!(stage.processes.running(), 3, "a running node is not started twice");

    let last: Vec<u32> = IDS.iter().map(|id| stage.processes.pid(*id).unwrap()).collect();
    stage.processes.stop_all();
    assert_eq!(stage.processes.running(), 0);
    assert!(last.iter().all(|pid| !is_alive(*pid)));
}

/// Returns the reported end of a node that runs these lines of shell. An earlier process has written to its log.
fn ended(does: &str) -> (Option<i32>, String) {
    let mut stage = stage([SERVE, does, SERVE]);
    let log = node_folder(stage.folder.path(), IDS[1]).join(LOG_FILE);
    fs::write(log, "error: of an earlier process\nnote: run with `RUST_BACKTRACE=1`\n").unwrap();
    stage.processes.start(IDS[1]).unwrap();
    let Event::Gone(gone) = stage.next() else { panic!("not gone") };
    assert_eq!(gone.id, IDS[1]);
    let line = gone.line.replace(&stage.folder.path().display().to_string(), "DIR");
    (gone.code, line.strip_prefix("node 1 has ended ").unwrap().to_owned())
}

#[test]
fn node_that_ends_by_itself_is_reported_with_its_error() {
    let (code, line) = ended("echo early >&2; echo 'error: all is lost' >&2; echo late >&2; exit 2");
    assert_eq!((code, line.as_str()), (Some(2), "(exit code 2): all is lost"));
    let (_, line) = ended("echo early >&2; echo '  last words ' >&2; exit 3");
    assert_eq!(line, "(exit code 3): last words");
    let panic =
        "echo; echo \"thread 'main' (7) panicked at a.rs:1:2:\"; echo 'no such thing'; echo 'note: run with'";
    let (_, line) = ended(&format!("{{ {panic}; }} >&2; exit 101"));
    assert_eq!(line, "(exit code 101): thread 'main' (7) panicked at a.rs:1:2: no such thing");
    let (code, line) = ended("exit 0");
    assert_eq!((code, line.as_str()), (Some(0), "(exit code 0) without a report in DIR/node1/node.log"));
}

#[test]
fn node_that_a_signal_ends_is_reported_with_the_signal() {
    let by = "somebody killed it, or the system ran out of memory";
    let (code, line) = ended("echo 'WARN stood still' >&2; kill -KILL $$");
    assert_eq!((code, line), (None, format!("(signal 9, SIGKILL): {by}")));
    let (_, line) = ended("echo 'WARN stood still' >&2; kill -USR1 $$");
    assert_eq!(line, "(signal 10, SIGUSR1)");
    let (_, line) = ended("echo 'the stack has overflowed' >&2; ulimit -c 0; kill -ABRT $$");
    assert_eq!(line, "(signal 6, SIGABRT): the stack has overflowed");
    let (_, line) = ended("ulimit -c 0; kill -SEGV $$");
    assert_eq!(line, "(signal 11, SIGSEGV)");
}

#[test]
fn waiting_ends_with_a_reason() {
    let mut stage = stage([
        SERVE,
        "echo broken >&2; exit 1",
        "echo taken 127.0.0.1:7; mkfifo \"$3.pipe\"; exec cat \"$3.pipe\"",
    ]);
    stage.processes.start(IDS[0]).unwrap();
    let slow = stage.processes.wait_ready(&[IDS[1]], Duration::from_millis(1)).unwrap_err().to_string();
    assert!(slow.contains("node 1 does not serve"), "{slow}");
    stage.processes.start(IDS[1]).unwrap();
    let broken = stage.processes.wait_ready(&[IDS[1]], PATIENCE).unwrap_err().to_string();
    assert!(broken.contains("node 1 has ended (exit code 1): broken"), "{broken}");
    stage.processes.start(IDS[2]).unwrap();
    let taken = stage.processes.wait_ready(&[IDS[2]], PATIENCE).unwrap_err().to_string();
    assert!(taken.contains("127.0.0.1:7 is taken"), "{taken}");
}

#[test]
fn dropped_processes_leave_no_child_behind() {
    let mut stage = stage([SERVE, SERVE, SERVE]);
    stage.processes.start_all().unwrap();
    stage.processes.wait_ready(&IDS, PATIENCE).unwrap();
    let pids: Vec<u32> = IDS.iter().map(|id| stage.processes.pid(*id).unwrap()).collect();
    drop(stage.processes);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn missing_program_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(node_folder(folder.path(), IDS[0])).unwrap();
    let mut processes = Processes::new(folder.path().join("nothing"), folder.path(), [IDS[0]], false);
    let error = processes.start(IDS[0]).unwrap_err().to_string();
    assert!(error.contains("cannot start node 0") && error.contains("nothing"), "{error}");
    assert_eq!(processes.start(ReplicaId(9)).unwrap_err().code(), 2);
}

#[test]
fn large_log_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join(LOG_FILE);
    File::create(&log).unwrap().set_len(LOG_BYTES_MAX + 1).unwrap();
    drop(open_log(folder.path()).unwrap());
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    assert!(folder.path().join("node.log.old").exists());
}

#[test]
fn the_last_line_of_any_log_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for (text, expected) in [("", None), ("\n\n", None), ("one", Some("one")), ("one\ntwo\n\n", Some("two"))]
    {
        fs::write(&log, text).unwrap();
        assert_eq!(cause::report(&log, 0).as_deref(), expected);
    }
    fs::write(&log, format!("{}\nlast\n", "x".repeat(1 << 20))).unwrap();
    assert_eq!(cause::report(&log, 0).as_deref(), Some("last"));
    assert_eq!(cause::report(&folder.path().join("none"), 0), None);
}
