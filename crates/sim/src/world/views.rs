//! Observation of views for the oracles of livelock and pacemaker.

use super::World;
use crate::oracles::{LivelockOracle, Oracle, views_needed};
use quorate_consensus::Note;
use quorate_replica::ReplicaStatus;
use quorate_types::{ReplicaId, View};

impl World {
    /// Judges a replica's notes of a turn, and its view after the turn.
    pub(super) fn judge_view(&mut self, id: ReplicaId, notes: &[Note]) {
        // With too many Byzantine replicas a quorum proves nothing.
        let is_promised = self.honest().count().saturating_add(self.settings.f) >= self.settings.n;
        if self.oracles.pacemaker.is_none() || !self.is_honest(id) || !is_promised {
            return;
        }
        // Notes of a replica that has stopped since count as well, because its messages have left.
        let view = self.running(id).map(|running| running.host.replica().leader().0);
        let Some(views) = &mut self.oracles.pacemaker else { return };
        notes.iter().for_each(|note| views.noted(id, note));
        if let Some(view) = view {
            let verdict = views.is_in(id, view);
            self.judge(self.now, verdict);
        }
    }

    /// Judges whether the honest replicas meet in a view while a client waits for an answer.
    fn look_for_meetings(&mut self) {
        let needed = views_needed(self.settings.n, self.settings.f, self.settings.entry.spec.rotates_leaders);
        let height = self.height();
        let running = self.sound().filter_map(|id| self.running(id));
        let at: Vec<(View, ReplicaId)> = running.map(|running| running.host.replica().leader()).collect();
        let Some(first) = at.first() else { return };
        let together = at.iter().all(|other| other == first) && self.is_honest(first.1);
        let highest = at.iter().map(|(view, _)| *view).max().unwrap_or_default();
        let verdict =
            self.oracles.pacemaker.as_mut().map(|views| views.look(height, highest, together, needed));
        if let Some(Err((oracle, what))) = verdict {
            let what = format!("{what}\n{}", self.status_lines());
            self.judge(self.now, Err((oracle, what)));
        }
    }

    /// Watches for livelock from now on.
    pub(crate) fn watch_for_livelock(&mut self) {
        self.oracles.livelock = Some(LivelockOracle::default());
        if let Some(views) = &mut self.oracles.pacemaker {
            views.rest();
        }
    }

    /// Checks for livelock at every transition of a protocol while a client waits for an answer. Views of an idle
    /// cluster are no livelock.
    pub(super) fn look_for_livelock(&mut self) {
        if self.oracles.livelock.is_none() {
            return;
        }
        if self.all_done() {
            return self.watch_for_livelock();
        }
        self.look_for_meetings();
        let sound: Vec<_> = self.sound().filter_map(|id| self.status(id)).collect();
        let least = |of: fn(&ReplicaStatus) -> u64| sound.iter().map(of).min().unwrap_or(0);
        let (n, f) = (self.settings.n, self.settings.f);
        // This is the view that a quorum has entered, so a single replica in another view hides nothing.
        let mut views: Vec<View> = sound.iter().map(|status| status.view).collect();
        views.sort_unstable_by(|a, b| b.cmp(a));
        let place = n.saturating_sub(f).min(views.len()).saturating_sub(1);
        let view = views.get(place).copied().unwrap_or_default();
        let (decided, executed) = (least(|status| status.decided.0), least(|status| status.executed.0));
        let state = || {
            let mut state = Vec::new();
            for status in &sound {
                let lead = [
                    status.view.0.saturating_sub(view.0),
                    status.decided.0.saturating_sub(decided),
                    status.executed.0.saturating_sub(executed),
                ];
                lead.iter().for_each(|number| state.extend_from_slice(&number.to_le_bytes()));
                state.extend_from_slice(status.last_view_change.as_bytes());
            }
            state
        };
        let height = self.height();
        let needed = views_needed(n, f, self.settings.entry.spec.rotates_leaders);
        let found = self
            .oracles
            .livelock
            .as_mut()
            .and_then(|livelock| livelock.look((height, view), (n, needed), state));
        if let Some(what) = found {
            let what = format!("{what}\n{}", self.status_lines());
            self.judge(self.now, Err((Oracle::Livelock, what)));
        }
    }
}
