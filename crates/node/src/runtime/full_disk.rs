//! A full disk: the node makes no statement until there is room again.

use super::{Node, NodeFault, PendingAnswer, RefusedMessage, TURN_BYTES, Taken, client_message};
use quorate_net::reactor::Event;
use quorate_replica::ConnId;
use quorate_types::Time;
use std::path::Path;
use std::time::Duration;

/// Bytes that must be free before the replica is opened again: two segments of the log.
const ROOM_BYTES: u64 = 32 << 20;
/// The pause between two looks at the free space.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Node {
    /// Waits until the disk has room again, until `must_stop` returns true, or until the admin stops the node. Returns whether there is room. Meanwhile the node
    /// has no links, and answers only questions for its status and requests to stop.
    ///
    /// # Errors
    /// Fails when the sockets cannot be used.
    pub fn wait_for_room(&mut self, must_stop: &mut dyn FnMut() -> bool) -> Result<bool, NodeFault> {
        self.net.cut_off();
        while !must_stop() && !self.is_stopped_by_admin() {
            if self.quarantine.folder_path().is_none_or(has_room) {
                tracing::info!("the disk has room again: the replica is opened on it");
                return Ok(true);
            }
            self.net.wait(Some(LOOK_EVERY))?;
            let now = self.clock.now();
            self.read_clients(now);
            self.net.tick(now);
            self.send_answers(now);
            self.net.flush(now);
        }
        Ok(false)
    }

    /// Notes and logs that the disk is full.
    pub(super) fn note_full_disk(&mut self, doing: &str) {
        let text = format!(
            "the disk is full while {doing}: free some space. This replica makes no statement until the disk of its data folder has \
             {} MiB, and counts among the f faulty replicas until then; then it goes on by itself",
            ROOM_BYTES >> 20
        );
        tracing::error!("{text}");
        self.full_disk = Some(text);
    }

    /// Takes in what clients send. Their bundles are dropped: they go to other replicas.
    fn read_clients(&mut self, now: Time) {
        let Self { net, clients, rejects, answers, cluster, stop_gate, .. } = self;
        net.read_ready(now, TURN_BYTES, &mut |event| match event {
            Event::ClientUp { conn, address } => clients.up(ConnId(conn.0), address),
            Event::ClientDown(conn) => clients.down(ConnId(conn.0)),
            Event::Client { conn, body } => {
                match client_message(clients, (*cluster, stop_gate), ConnId(conn.0), body, now) {
                    Ok(Taken::Answer(answer)) => answers.push(answer),
                    Ok(Taken::Nothing | Taken::Order(..)) => {}
                    Err(RefusedMessage::Ignored(reason)) => {
                        rejects.count(clients.origin(ConnId(conn.0)), reason);
                    }
                    Err(RefusedMessage::Closes(conn, reason)) => {
                        clients.close(conn);
                        answers.push(PendingAnswer::Close(conn, reason));
                    }
                }
            }
            _ => {}
        });
    }
}

fn has_room(folder: &Path) -> bool {
    // A file system that does not tell its free space is tried.
    rustix::fs::statvfs(folder)
        .map_or(true, |space| space.f_bavail.saturating_mul(space.f_frsize) >= ROOM_BYTES)
}
