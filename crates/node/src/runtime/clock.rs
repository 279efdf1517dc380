//! The clock of the node: no other code of a replica process reads the time.

use quorate_types::Time;
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// The monotonic time since the node was open. The clock also runs while the machine is suspended: the standard library's
/// monotonic clock stands still meanwhile, so a replica would not notice that it was away.
#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    start_ns: u64,
}

impl Default for NodeClock {
    fn default() -> Self {
        Self { start_ns: since_boot_ns() }
    }
}

impl NodeClock {
    /// Returns the time from the machine's boot to the start.
    #[cfg(test)]
    pub(super) fn started_ns(&self) -> u64 {
        self.start_ns
    }

    /// Returns the nanoseconds since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(since_boot_ns().saturating_sub(self.start_ns))
    }
}

/// Returns the nanoseconds since the machine's boot, including those for which it was suspended.
pub(super) fn since_boot_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

/// Returns the CPU nanoseconds of this thread so far. This is a system call, ten times as expensive as reading the time.
pub(super) fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// Returns the CPU nanoseconds of this process so far, of all its threads in user and kernel mode.
pub(super) fn process_cpu_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// Returns the wall-clock nanoseconds since 1970; zero before 1970.
#[must_use]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    const NAME: &str = "runtime::clock::tests::clock_runs_while_the_machine_is_suspended";
    const INNER: &str = "QUORATE_TEST_IN_A_TIME_NAMESPACE";

    /// Compares the clock with the system's own figure, which includes the time for which the machine was suspended. In a time
    /// namespace the two monotonic clocks of the system differ, as after a suspension.
    #[test]
    fn clock_runs_while_the_machine_is_suspended() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split_whitespace().next().unwrap().parse().unwrap())
        };
        let (before, now) = (uptime(), Duration::from_nanos(since_boot_ns()));
        // The figure has hundredths of a second.
        let slack = Duration::from_millis(20);
        assert!(before <= now + slack && now <= uptime() + slack, "{before:?}, {now:?}");
        if std::env::var_os(INNER).is_some() {
            return;
        }
        let mut inner = Command::new("unshare");
        inner.args(["--user", "--map-root-user", "--time", "--boottime", "5000", "--fork", "--"]);
        inner.arg(std::env::current_exe().unwrap()).args([NAME, "--exact"]).env(INNER, "1");
        match inner.output() {
            Ok(ran) if !String::from_utf8_lossy(&ran.stderr).starts_with("unshare:") => {
                assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
            }
            // Some machines make no time namespace for ordinary users.
            Ok(_) | Err(_) => {}
        }
    }
}
