//! What an operator should hear of: who or what makes this replica slow, and who leads now. Each line names the
//! disk, the peer or the machine that causes it, and comes now and then however often it happens.

use super::rare::{Rare, of_how_many};
use quorate_net::Direction;
use quorate_types::wire::Lane;
use quorate_types::{ReplicaId, Time, View};
use std::collections::BTreeMap;

/// A sync, or a pass of the loop, that takes longer holds everybody up: half of the shortest timeout.
const SLOW_NS: u64 = 200_000_000;

/// What has happened, and the lines about it that are due.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    disk: Rare,
    pause: Rare,
    /// By peer: bounded by the committee.
    losses: BTreeMap<ReplicaId, Rare>,
    /// By peer too.
    downs: BTreeMap<ReplicaId, Rare>,
    views: Rare,
    view: View,
    longest_sync_ns: u64,
    longest_pause_ns: u64,
}

impl Trouble {
    /// A pass of the loop is over: how long it took, and how long the longest sync in it.
    pub(super) fn passed(&mut self, now: Time, pass_ns: u64, sync_ns: u64) -> Option<String> {
        self.longest_sync_ns = self.longest_sync_ns.max(sync_ns);
        self.longest_pause_ns = self.longest_pause_ns.max(pass_ns);
        if sync_ns >= SLOW_NS {
            let often = of_how_many(self.disk.happened(now)?);
            let ms = ms(sync_ns);
            Some(format!("the disk of data_dir took {ms} ms for a sync{often}: it is slow, busy or failing"))
        } else if pass_ns >= SLOW_NS {
            let often = of_how_many(self.pause.happened(now)?);
            let ms = ms(pass_ns);
            Some(format!(
                "this replica stood still for {ms} ms{often}: the machine is busy, the application slow, or somebody had \
                 stopped it"
            ))
        } else {
            None
        }
    }

    /// Frames of the link to a peer are lost for good.
    pub(super) fn lost(
        &mut self,
        now: Time,
        peer: ReplicaId,
        direction: Direction,
        lane: Lane,
    ) -> Option<String> {
        let often = of_how_many(self.losses.entry(peer).or_default().happened(now)?);
        Some(match direction {
            Direction::Outgoing => format!(
                "replica {peer} takes in too little: what waited for it on lane {lane:?} was dropped{often}"
            ),
            Direction::Incoming => format!(
                "frames of replica {peer} on lane {lane:?} were lost{often}: it dropped them, or has started anew"
            ),
        })
    }

    /// The link to a peer is down.
    pub(super) fn down(&mut self, now: Time, peer: ReplicaId) -> Option<String> {
        let often = of_how_many(self.downs.entry(peer).or_default().happened(now)?);
        Some(format!("the link to replica {peer} is down{often}"))
    }

    /// Who leads which view, asked after each pass. Says when that is another view than before, and `why`; of many
    /// views in a short time it says the first at once, and the one that stays when the silence ends.
    pub(super) fn leads(
        &mut self,
        now: Time,
        view: View,
        leader: ReplicaId,
        why: impl FnOnce() -> String,
    ) -> Option<String> {
        if view != self.view {
            self.view = view;
            self.views.note();
        }
        let often = of_how_many(self.views.tell(now)?);
        let why = match why() {
            // It has seen no view change in this life.
            none if none.is_empty() => "this replica has started in it".to_owned(),
            why => why,
        };
        Some(format!("view {view}, led by replica {leader}{often}: {why}"))
    }

    /// The longest sync and the longest pass of the loop so far, in milliseconds.
    pub(super) fn longest_ms(&self) -> (u64, u64) {
        (ms(self.longest_sync_ns), ms(self.longest_pause_ns))
    }
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::super::rare::LINE_EVERY_NS;
    use super::*;

    #[test]
    fn a_slow_disk_is_named_and_not_again_at_once() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.passed(Time(1), SLOW_NS - 1, SLOW_NS - 1), None, "quick enough");
        let line = trouble.passed(Time(2), 2 * SLOW_NS, SLOW_NS).unwrap();
        assert!(line.starts_with("the disk of data_dir took 200 ms"), "{line}");
        let line = trouble.passed(Time(3), SLOW_NS, 0).unwrap();
        assert!(line.starts_with("this replica stood still for 200 ms"), "the disk is not to blame: {line}");
        for now in 4..20 {
            assert_eq!(trouble.passed(Time(now), SLOW_NS, SLOW_NS), None);
        }
        let line = trouble.passed(Time(2 + LINE_EVERY_NS), SLOW_NS, SLOW_NS).unwrap();
        assert!(line.contains("(17 times since the last such line)"), "{line}");
        assert_eq!(trouble.longest_ms(), (200, 400));
    }

    #[test]
    fn each_slow_peer_is_named() {
        let mut trouble = Trouble::default();
        let mut lost =
            |now, peer| trouble.lost(Time(now), ReplicaId(peer), Direction::Outgoing, Lane::Bodies);
        assert!(lost(1, 2).unwrap().contains("replica 2 takes in too little"));
        assert_eq!(lost(2, 2), None);
        assert!(lost(3, 3).unwrap().contains("replica 3"), "one peer hides no other");
    }

    #[test]
    fn a_new_view_is_told_with_its_reason() {
        let mut trouble = Trouble::default();
        let mut leads = |now, view| {
            trouble.leads(Time(now), View(view), ReplicaId(1), || "a request was overdue".to_owned())
        };
        assert_eq!(leads(1, 0), None, "the first view is no news");
        assert_eq!(leads(2, 1).unwrap(), "view 1, led by replica 1: a request was overdue");
        assert_eq!(leads(3, 1), None);
        // Replicas that chase each other through views do not fill the log.
        assert!((2..1_000).all(|view| leads(4, view).is_none()));
        // Where it ended is told, although nothing happens any more.
        assert_eq!(leads(1 + LINE_EVERY_NS, 999), None);
        let line = leads(2 + LINE_EVERY_NS, 999).unwrap();
        assert!(line.starts_with("view 999, led by replica 1 (998 times since"), "{line}");
        assert_eq!(leads(3 + 2 * LINE_EVERY_NS, 999), None);
    }

    #[test]
    fn a_replica_that_starts_in_a_later_view_says_so() {
        let mut trouble = Trouble::default();
        let line = trouble.leads(Time(1), View(5), ReplicaId(1), String::new).unwrap();
        assert_eq!(line, "view 5, led by replica 1: this replica has started in it");
    }

    #[test]
    fn a_link_that_comes_and_goes_does_not_fill_the_log() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.down(Time(1), ReplicaId(2)).unwrap(), "the link to replica 2 is down");
        assert!((2..100).all(|now| trouble.down(Time(now), ReplicaId(2)).is_none()));
        assert!(trouble.down(Time(3), ReplicaId(3)).is_some(), "one peer hides no other");
        let line = trouble.down(Time(1 + LINE_EVERY_NS), ReplicaId(2)).unwrap();
        assert!(line.ends_with("is down (99 times since the last such line)"), "{line}");
    }
}
