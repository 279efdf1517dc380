//! The two theorems about a pacemaker that changes views by certificate only.
//!
//! *A view is left with a certificate.* A replica that enters view v has a certificate. A quorum voted in view v - 1,
//! or a quorum timed out in an earlier view. At most f members of a quorum are Byzantine, so n - 2f honest replicas
//! acted. Their notes prove it, named as the protocol names them ([`Pace`]). If a leader has several views in a row, a
//! timeout skips the rest of them.
//!
//! *All replicas meet again and again.* While nothing is executed after a heal, views end by timers. These are long
//! enough for all replicas to enter. Each replica leads once within a known number of views. In one of these views, with
//! an honest leader, all honest replicas are present at the same time.

use super::finding::{Judged, Oracle};
use crate::settings::Settings;
use quorate_consensus::{Note, Pace};
use quorate_types::{Height, ReplicaId, ReplicaSet, View};
use std::collections::BTreeMap;

/// Actions of replicas in one view.
#[derive(Default, Debug)]
struct ViewActions {
    voted: ReplicaSet,
    gave_up: ReplicaSet,
}

/// The time since all replicas met last.
#[derive(Clone, Copy, Debug)]
struct SinceMeeting {
    /// Greatest executed height.
    height: Height,
    /// Greatest view.
    highest: View,
    /// Number of times that the greatest view has risen.
    views: usize,
}

/// The pacemaker oracle.
#[derive(Debug)]
pub(crate) struct PacemakerOracle {
    pace: Pace,
    /// Number of honest replicas in every quorum: n - 2f.
    honest: usize,
    done: BTreeMap<View, ViewActions>,
    /// Last view of each running replica.
    at: Vec<Option<View>>,
    /// The time since something was executed or all replicas met.
    apart: Option<SinceMeeting>,
}

impl PacemakerOracle {
    /// Returns the oracle for a protocol, or `None` for one that leaves views without a certificate.
    pub(crate) fn of(settings: &Settings, params: &toml::Table) -> Option<Self> {
        let pace = (settings.entry.pace)(params).ok().flatten()?;
        Some(Self::new(pace, settings.n, settings.f))
    }

    fn new(pace: Pace, n: usize, f: usize) -> Self {
        let honest = n.saturating_sub(f.saturating_mul(2)).max(1);
        Self { pace, honest, done: BTreeMap::new(), at: vec![None; n], apart: None }
    }

    /// Records a note of an honest replica.
    pub(crate) fn noted(&mut self, by: ReplicaId, note: &Note) {
        if note.what == self.pace.voted {
            self.done.entry(note.view).or_default().voted.insert(by);
        } else if note.what == self.pace.gave_up {
            self.done.entry(note.view).or_default().gave_up.insert(by);
        }
    }

    /// Records that a replica stopped. The view of its next start needs no certificate.
    pub(crate) fn stopped(&mut self, id: ReplicaId) {
        if let Some(at) = self.at.get_mut(id.index()) {
            *at = None;
        }
    }

    /// Judges the view of an honest replica after a turn.
    pub(crate) fn is_in(&mut self, by: ReplicaId, view: View) -> Judged {
        let before = self.at.get_mut(by.index()).and_then(|at| at.replace(view));
        if before.is_none_or(|before| view <= before) || self.is_justified(view) {
            return Ok(());
        }
        let what = format!(
            "replica {by} went from view {} into view {view}; fewer than {} honest replicas voted in the view before \
             it, or timed out in one of the last {}",
            before.unwrap_or_default(),
            self.honest,
            self.pace.term
        );
        Err((Oracle::Pacemaker, what))
    }

    fn is_justified(&self, view: View) -> bool {
        let enough = |set: &ReplicaSet| set.len() >= self.honest;
        let before = view.minus(1);
        self.done.get(&before).is_some_and(|done| enough(&done.voted))
            || self.done.range(view.minus(self.pace.term)..view).any(|(_, done)| enough(&done.gave_up))
    }

    /// Judges the views of all honest replicas, after the heal and while a request waits. `together`: all are in one
    /// view with an honest leader.
    pub(crate) fn look(&mut self, height: Height, highest: View, together: bool, needed: usize) -> Judged {
        let begin = SinceMeeting { height, highest, views: 0 };
        let apart = self.apart.get_or_insert(begin);
        if together || height > apart.height {
            *apart = begin;
        } else if highest > apart.highest {
            apart.highest = highest;
            apart.views = apart.views.saturating_add(1);
        }
        if apart.views <= needed {
            return Ok(());
        }
        let what = format!(
            "nothing was executed since height {height}, and in {} views the honest replicas were never all in one \
             view with an honest leader",
            apart.views
        );
        Err((Oracle::Pacemaker, what))
    }

    /// Forgets the time without a meeting, because the protocol promises nothing or the promise begins anew.
    pub(crate) fn rest(&mut self) {
        self.apart = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { voted: "voted", gave_up: "gave up", term: 3 };

    fn views() -> PacemakerOracle {
        PacemakerOracle::new(PACE, 4, 1)
    }

    fn note(views: &mut PacemakerOracle, what: &'static str, view: u64, by: &[u16]) {
        for by in by {
            views.noted(ReplicaId(*by), &Note { what, view: View(view), height: Height::ZERO });
        }
    }

    fn enters(views: &mut PacemakerOracle, view: u64) -> bool {
        views.is_in(ReplicaId(0), View(view)).is_ok()
    }

    #[test]
    fn view_is_entered_after_actions_of_honest_replicas() {
        let mut views = views();
        assert!(enters(&mut views, 1), "everybody begins there");
        note(&mut views, "voted", 1, &[1]);
        assert!(
            !enters(&mut views, 2),
            "one of four may be the only one that did not lie, and no quorum has but one"
        );
        note(&mut views, "voted", 2, &[1, 2]);
        assert!(enters(&mut views, 3));
        note(&mut views, "gave up", 3, &[1, 3]);
        assert!(enters(&mut views, 6), "past the rest of a term");
        assert!(!enters(&mut views, 7), "and no further");
        note(&mut views, "something else", 7, &[1, 2, 3]);
        assert!(!enters(&mut views, 8));
    }

    #[test]
    fn view_of_a_start_needs_no_certificate() {
        let mut views = views();
        for opened in [70, 50] {
            assert_eq!(views.is_in(ReplicaId(2), View(opened)), Ok(()));
            assert!(views.is_in(ReplicaId(2), View(opened + 1)).is_err());
            views.stopped(ReplicaId(2));
        }
    }

    #[test]
    fn replicas_that_never_meet_are_found() {
        let mut views = views();
        let met = |views: &mut PacemakerOracle, view, height, together| {
            views.look(Height(height), View(view), together, 10).is_ok()
        };
        assert!((5..=15).all(|view| met(&mut views, view, 3, false)));
        assert!(met(&mut views, 16, 3, true), "together once");
        assert!((17..=26).all(|view| met(&mut views, view, 3, false)));
        assert!(met(&mut views, 27, 4, false), "or something was executed");
        assert!((28..=37).all(|view| met(&mut views, view, 4, false)));
        assert!(!met(&mut views, 38, 4, false));
        views.rest();
        assert!(met(&mut views, 38, 4, false));
    }
}
