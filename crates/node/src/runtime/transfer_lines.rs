//! Lines about a transfer of state: its begin, its progress, and the peers that lie.

use super::log_lines::{LINE_EVERY_NS, LogLine};
use quorate_host::TransferStatus;
use quorate_types::{ReplicaId, Time};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TransferLines {
    /// Whether the last line reports a need.
    is_needed: bool,
    /// The time of the next line about the progress.
    next_at: Time,
    /// Liars that have a line.
    bad: BTreeSet<ReplicaId>,
    /// Bytes that `disk_bytes_max` lacked at the last line.
    no_room: Option<u64>,
}

impl TransferLines {
    /// Returns the due lines. `transfer` is the needed transfer, as far as it has come.
    pub(super) fn after_pass(&mut self, now: Time, transfer: Option<TransferStatus>) -> Vec<LogLine> {
        let Some(transfer) = transfer else {
            *self = Self { bad: std::mem::take(&mut self.bad), ..Self::default() };
            return Vec::new();
        };
        let mut lines = Vec::new();
        for (peer, why) in transfer.bad.iter().filter(|(peer, _)| self.bad.insert(*peer)) {
            lines.push(LogLine::Warn(format!(
                "replica {peer} has sent a wrong part of a state ({why}): it lies or its disk is damaged; it is not asked for a minute"
            )));
        }
        if let Some(bytes) = transfer.no_room.filter(|_| self.no_room != transfer.no_room) {
            lines.push(LogLine::Error(format!(
                "the state of the peers does not fit: raise disk_bytes_max by {bytes} bytes at least, and start the node again"
            )));
        }
        self.no_room = transfer.no_room;
        if !std::mem::replace(&mut self.is_needed, true) || self.next_at <= now {
            self.next_at = now.plus(LINE_EVERY_NS);
            lines.push(LogLine::Info(progress(&transfer)));
        }
        lines
    }
}

fn progress(transfer: &TransferStatus) -> String {
    match transfer.height {
        None => "this replica needs a state of its peers, and asks them".to_owned(),
        Some(height) => {
            let mb = |bytes: u64| bytes >> 20;
            let sources: Vec<String> = transfer.sources.iter().map(ToString::to_string).collect();
            format!(
                "receives the state at height {height} from replicas {}: {} of {} MB",
                sources.join(", "),
                mb(transfer.received),
                mb(transfer.total)
            )
        }
    }
}

/// Returns the progress for `quorate status`; `null` when no transfer is needed.
pub(super) fn transfer_json(transfer: Option<&TransferStatus>) -> Value {
    let Some(transfer) = transfer else { return Value::Null };
    let sources: Vec<u16> = transfer.sources.iter().map(|peer| peer.0).collect();
    let bad: Vec<Value> = transfer.bad.iter().map(|(peer, why)| json!({"id": peer.0, "why": why})).collect();
    json!({
        "height": transfer.height.map(|height| height.0), "received_bytes": transfer.received,
        "total_bytes": transfer.total, "sources": sources, "bad": bad, "lacks_bytes": transfer.no_room,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Height;

    #[test]
    fn transfer_has_a_line_at_its_begin_and_every_ten_seconds_and_each_liar_has_one() {
        let mut lines = TransferLines::default();
        let mut at = |second: u64, transfer: Option<TransferStatus>| -> Vec<String> {
            let now = Time(second * 1_000_000_000);
            lines.after_pass(now, transfer).iter().map(|line| line.text().to_owned()).collect()
        };
        let mut transfer = TransferStatus {
            height: None,
            received: 0,
            total: 0,
            sources: Vec::new(),
            bad: Vec::new(),
            no_room: None,
        };
        assert_eq!(at(0, None), [""; 0]);
        assert_eq!(at(1, Some(transfer.clone())), ["this replica needs a state of its peers, and asks them"]);
        assert_eq!(at(2, Some(transfer.clone())), [""; 0]);
        transfer = TransferStatus {
            height: Some(Height(96)),
            received: 40 << 20,
            total: 100 << 20,
            sources: vec![ReplicaId(0), ReplicaId(2)],
            ..transfer
        };
        let progress = "receives the state at height 96 from replicas 0, 2: 40 of 100 MB";
        assert_eq!(at(11, Some(transfer.clone())), [progress]);
        transfer.bad = vec![(ReplicaId(1), "chunk differs from its digest")];
        transfer.no_room = Some(7);
        let two = at(12, Some(transfer.clone()));
        assert!(two[0].starts_with("replica 1 has sent a wrong part of a state (chunk differs"), "{two:?}");
        assert!(two[1].contains("raise disk_bytes_max by 7 bytes"), "{two:?}");
        assert_eq!(at(13, Some(transfer.clone())), [""; 0]);
        assert_eq!(at(14, None), [""; 0]);
        assert_eq!(
            at(15, Some(transfer)).len(),
            2,
            "the need and the lack of room, and the liar has its line"
        );
    }
}
