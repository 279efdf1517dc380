//! The content of `status`: one JSON object for each replica.

use super::clock::process_cpu_ns;
use super::transfer_lines::transfer_json;
use super::{Node, quarantine};
use quorate_replica::{AlarmStatus, AmnesiaStatus, GuardStatus, ReplicaState};
use quorate_types::{Height, Ledger, Time};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Settings that belong to every measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Name of the protocol.
    pub protocol: String,
    /// The number of replicas.
    pub n: usize,
    /// The number of faulty replicas tolerated.
    pub f: usize,
    /// `fsync`, `os` or `none`.
    pub durability: String,
    /// The mode of writes to the log: direct or buffered.
    pub log_mode: String,
    /// `tls` or `plain`.
    pub link_auth: String,
    /// `signature` or `none`.
    pub client_auth: String,
    /// `guarded` or `unguarded` if the protocol assumes a bound on delays, as in the guard's status.
    pub mode: Option<String>,
    /// The arithmetic that checks signatures.
    pub curve: String,
}

/// Whether a replica with pending work makes progress.
#[derive(Debug, Default)]
pub(super) struct ExecutionProgress {
    executed: Height,
    updated: Time,
    /// Whether there was pending work at the last update.
    is_due: bool,
    /// The time for which work was pending and nothing was executed, without standstills of this process.
    stalled_ns: u64,
}

/// The time without execution after which a replica with pending work makes no progress.
const STALLED_NS: u64 = 5_000_000_000;
/// The largest time between two updates that counts: a running process updates more often.
const BETWEEN_UPDATES_NS_MAX: u64 = 1_500_000_000;

impl ExecutionProgress {
    /// Updates after each pass. `waiting` is the number of requests in the pool. If execution `is_held` until decided blocks
    /// are durable, the last block of an idle cluster waits for the next sync (ADR 0011).
    pub(super) fn update(
        &mut self,
        now: Time,
        waiting: usize,
        (decided, executed): (Height, Height),
        is_held: bool,
    ) {
        let passed = now.since(std::mem::replace(&mut self.updated, now)).min(BETWEEN_UPDATES_NS_MAX);
        let due = if is_held { executed.next() } else { executed };
        let was_due = std::mem::replace(&mut self.is_due, waiting > 0 || decided > due);
        if executed != self.executed || !self.is_due {
            (self.executed, self.stalled_ns) = (executed, 0);
        } else if was_due {
            self.stalled_ns = self.stalled_ns.saturating_add(passed);
        }
    }

    fn is_made(&self) -> bool {
        self.stalled_ns < STALLED_NS
    }
}

impl Node {
    /// Returns the cost of all work of this process.
    fn ledger(&self) -> Ledger {
        let mut ledger = self.host.ledger();
        ledger.add(self.net.ledger());
        ledger.allocations = crate::alloc::count();
        ledger.allocations_application = crate::alloc::application_count();
        ledger
    }

    /// Returns the work of this process in one line, for the log of a node that stops.
    #[must_use]
    pub fn summary(&self) -> String {
        let counters = self.ledger().entries().into_iter().filter(|(_, value)| *value > 0);
        let counters: Vec<String> = counters.map(|(name, value)| format!("{name} {value}")).collect();
        format!(
            "executed up to height {}; {}",
            self.host.executor().execution().height(),
            counters.join(", ")
        )
    }

    /// Returns the times of this process's steps, a line for each kind, for the log of a node that stops.
    #[must_use]
    pub fn step_lines(&self) -> Vec<String> {
        self.steps.lines()
    }

    /// Returns the link to each peer.
    fn peers_json(&self, alarms: &AlarmStatus) -> Vec<Value> {
        let near_misses = |peer| alarms.near_misses.get(&peer).copied().unwrap_or_default();
        let peers = self.net.peers().into_iter().map(|peer| {
            json!({
                "id": peer.id.0, "connected": peer.connected, "urgent": peer.urgent,
                "incarnation": peer.incarnation.0, "near_misses": near_misses(peer.id),
                "connections": peer.connections, "queued_bytes": peer.queued_bytes,
                "resend_bytes": peer.resend_bytes, "last_refusal": peer.last_refusal,
                "address": peer.address.to_string(), "dials": peer.dials, "dial_error": peer.dial_error,
                "delay_ms": delay_ms(peer.delay_ns),
            })
        });
        peers.collect()
    }

    /// Returns the status as one line of JSON.
    pub(super) fn status_json(&mut self, now: Time) -> String {
        let replica = self.host.replica().status();
        let excluded = self.quarantine.reason();
        let progress = self.progress.is_made()
            && excluded.is_none()
            && self.full_disk.is_none()
            && !matches!(
                replica.state,
                ReplicaState::Stopped
                    | ReplicaState::Out
                    | ReplicaState::AwaitsState
                    | ReplicaState::Amnesiac
            );
        let ledger = self.ledger();
        let counters: Map<String, Value> =
            ledger.entries().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let peers = self.peers_json(&replica.alarms);
        let timers: Vec<Value> = replica
            .timers
            .iter()
            .map(|(at, name)| json!({"name": name, "in_ms": at.since(now) / 1_000_000}))
            .collect();
        let usage = usage();
        let (longest_sync_ms, longest_pause_ms) = self.reporter.longest_ms();
        // Computed from the buckets that changed since the last digest; the next checkpoint needs the same work.
        let state = self.host.executor_mut().execution_mut().digest();
        let [stopped, last_doubt] = [replica.alarms.stopped, replica.alarms.last_doubt]
            .map(|alarm| alarm.map(|alarm| alarm.to_string()));
        json!({
            "id": replica.id.0, "up": true, "incarnation": replica.incarnation.0,
            "state": replica.state.name(), "alarm": stopped.or(excluded.map(quarantine::alarm)).or(self.full_disk.clone()),
            "alarms": self.alarms.list(now),
            // `null` unless the replica has lost its disk and is not back.
            "amnesia": replica.amnesia.as_ref().map(amnesia_json),
            // `null` unless the replica needs a state of its peers, or has found none on its disk.
            "transfer": transfer_json(self.host.transfer().as_ref()), "missing_state": self.host.missing_state(),
            "view": replica.view.0, "leader": replica.leader.0, "normal": replica.normal,
            "committed": replica.decided.0, "executed": replica.executed.0, "stable": replica.stable.0,
            "kept": replica.kept.0, "state_digest": state.to_string(), "progress": progress,
            "view_changes": replica.view_changes,
            "last_view_change": {"view": replica.view.0, "why": replica.last_view_change},
            "stalled_ms": self.progress.stalled_ns / 1_000_000,
            "pool": {
                "bundles": replica.pool.bundles, "bytes": replica.pool.bytes,
                "idle_bundles": replica.pool.idle_bundles, "idle_bytes": replica.pool.idle_bytes,
            },
            "guard_entries": replica.outbox.guard_entries, "records": replica.outbox.records,
            "held": replica.outbox.held,
            "contradictions": replica.alarms.contradictions,
            // `null` if the protocol assumes no bound on delays.
            "guard": replica.guard.as_ref().map(|guard| guard_json(guard, now)),
            "synchrony_alarms": {"count": replica.alarms.doubts, "last": last_doubt},
            "peers": peers, "clients": {"connections": self.clients.size().0, "attached": self.clients.size().1},
            "timers": timers, "longest_pause_ms": longest_pause_ms, "longest_sync_ms": longest_sync_ms,
            "rejects": self.rejects.counts(), "settings": self.facts,
            "uptime_ms": now.0 / 1_000_000, "usage": usage, "ledger": counters,
            "steps": self.steps.figures(),
        })
        .to_string()
    }
}

/// Returns the delay of a link in milliseconds. The division gives the number that `node.toml` has.
fn delay_ms(ns: u64) -> f64 {
    f64::from(u32::try_from(ns).unwrap_or(u32::MAX)) / 1e6
}

/// Returns the way back of a replica that has lost its disk.
fn amnesia_json(amnesia: &AmnesiaStatus) -> Value {
    json!({
        "shown": amnesia.shown, "needed": amnesia.needed, "stable": amnesia.stable.map(|height| height.0),
        "view": amnesia.view.map(|view| view.0),
    })
}

/// Returns the state of the synchrony guard. `since_ms` and `last_doubt_ms` are times before now.
fn guard_json(guard: &GuardStatus, now: Time) -> Value {
    let ms = |ns| Duration::from_nanos(ns).as_secs_f64() * 1e3;
    let ago = |at: Time| now.since(at) / 1_000_000;
    let late: Vec<Value> =
        guard.late.iter().map(|(id, since)| json!({"id": id.0, "since_ms": ago(*since)})).collect();
    json!({
        "mode": guard.bound.mode(), "delta_ms": ms(guard.bound.delta_ns),
        "p999_ms": ms(guard.p999_ns), "max_ms": ms(guard.max_ns), "late": late,
        "doubt": guard.doubt, "doubts": guard.doubts, "last_doubt_ms": guard.last_doubt.map(ago),
        "drift_ppm": guard.drift_ppm, "probes": guard.probes,
        "lags": guard.lags, "lag_max_ms": ms(guard.lag_max_ns),
    })
}

/// Returns the CPU time, resident bytes and context switches of this process, as the kernel counts them.
fn usage() -> Value {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    json!({
        "cpu_ms": process_cpu_ns() / 1_000_000,
        "resident_bytes": field("VmRSS:").saturating_mul(1_024),
        "resident_bytes_max": field("VmHWM:").saturating_mul(1_024),
        "threads": field("Threads:"),
        "voluntary_context_switches": field("voluntary_ctxt_switches:"),
        "involuntary_context_switches": field("nonvoluntary_ctxt_switches:"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_consensus::Synchrony;
    use quorate_types::ReplicaId;

    #[test]
    fn guard_status_is_in_milliseconds() {
        let guard = GuardStatus {
            bound: Synchrony { delta_ns: 50_000_000, guarded: true },
            p999_ns: 2_500_000,
            max_ns: 9_000_000,
            late: vec![(ReplicaId(2), Time(1_000_000_000))],
            doubt: false,
            doubts: 3,
            last_doubt: Some(Time(500_000_000)),
            drift_ppm: Some(-12),
            probes: 77,
            lags: 2,
            lag_max_ns: 13_000_000,
        };
        let expected = json!({
            "mode": "guarded", "delta_ms": 50.0, "p999_ms": 2.5, "max_ms": 9.0,
            "late": [{"id": 2, "since_ms": 1_000}], "doubt": false, "doubts": 3, "last_doubt_ms": 1_500,
            "drift_ppm": -12, "probes": 77, "lags": 2, "lag_max_ms": 13.0,
        });
        assert_eq!(guard_json(&guard, Time(2_000_000_000)), expected);
        let bound = Synchrony { guarded: false, ..guard.bound };
        let fresh = GuardStatus { bound, last_doubt: None, drift_ppm: None, ..guard };
        let fresh = guard_json(&fresh, Time(2_000_000_000));
        assert_eq!((&fresh["mode"], &fresh["last_doubt_ms"]), (&json!("unguarded"), &Value::Null));
    }

    /// Returns whether progress is made at each of these times in seconds; the executed height is 7.
    fn progress_at(times: &[u64], waiting: usize, decided: u64, is_held: bool) -> Vec<bool> {
        let mut progress = ExecutionProgress::default();
        let is_made = |second: &u64| {
            progress.update(Time(second * 1_000_000_000), waiting, (Height(decided), Height(7)), is_held);
            progress.is_made()
        };
        times.iter().map(is_made).collect()
    }

    #[test]
    fn last_block_of_an_idle_cluster_is_no_standstill_if_execution_is_held() {
        let times: Vec<u64> = (1..=8).collect();
        let last = |waiting, decided, is_held| progress_at(&times, waiting, decided, is_held).pop();
        assert_eq!(last(0, 7, false), Some(true), "no pending work");
        assert_eq!(last(0, 8, false), Some(false));
        assert_eq!(last(0, 8, true), Some(true), "the next heartbeat syncs");
        assert_eq!(last(0, 9, true), Some(false));
        assert_eq!(last(1, 8, true), Some(false), "a request waits");
    }

    #[test]
    fn standstill_begins_when_work_is_pending() {
        let all = progress_at(&[1, 2, 3, 4, 5, 6, 7], 1, 7, false);
        assert_eq!(all, [true, true, true, true, true, false, false], "five seconds after the first update");
        let mut progress = ExecutionProgress::default();
        for second in 1..=100u64 {
            progress.update(Time(second * 1_000_000_000), 0, (Height(7), Height(7)), false);
        }
        progress.update(Time(101_000_000_000), 1, (Height(7), Height(7)), false);
        assert!(progress.is_made(), "a request has just arrived at an idle cluster");
    }

    #[test]
    fn standstill_of_the_process_does_not_count() {
        assert_eq!(progress_at(&[1, 60, 61], 1, 7, false), [true, true, true]);
    }

    #[test]
    fn execution_is_progress_under_any_backlog() {
        let mut progress = ExecutionProgress::default();
        for second in 1..=100u64 {
            let heights = (Height(second / 4 + 9), Height(second / 4));
            progress.update(Time(second * 1_000_000_000), 1_000, heights, false);
            assert!(progress.is_made(), "{second}");
        }
    }

    #[test]
    fn mode_is_a_setting_if_delays_are_bounded() {
        let text = || "?".to_owned();
        for (guarded, mode) in
            [(Some(true), json!("guarded")), (Some(false), json!("unguarded")), (None, Value::Null)]
        {
            let bound = guarded.map(|guarded| Synchrony { delta_ns: 50_000_000, guarded });
            let facts = Facts {
                protocol: text(),
                n: 3,
                f: 1,
                durability: text(),
                log_mode: text(),
                link_auth: text(),
                client_auth: text(),
                mode: bound.map(|bound| bound.mode().to_owned()),
                curve: text(),
            };
            let settings = serde_json::to_value(facts).unwrap();
            assert_eq!(settings.get("mode"), Some(&mode));
        }
    }
}
