//! Lines about links: who is reached, who is not and why, and what was lost.
//!
//! A change is told at once, and of many in a short time the last one. A link that does not come is told of with the address
//! and the reason, at growing intervals.

use super::rare::{Rare, of_how_many};
use quorate_net::Direction;
use quorate_net::reactor::PeerStatus;
use quorate_types::wire::Lane;
use quorate_types::{Incarnation, ReplicaId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Links that are down are looked at this often.
const LOOK_NS: u64 = 1_000_000_000;
/// A link is down for so long before its first line: a cluster that starts, or a node that restarts, needs none.
const FIRST_LINE_NS: u64 = 5_000_000_000;
/// The longest time between two lines about one link.
const LINES_APART_NS_MAX: u64 = 600_000_000_000;

/// The state of the link to one peer.
#[derive(Debug, Default)]
struct Link {
    is_up: bool,
    /// Whether the last line said that it is up.
    told_up: bool,
    ups: Rare,
    downs: Rare,
    losses: Rare,
    restarts: Rare,
    /// Its latest life that was heard.
    life: Incarnation,
    earlier: Rare,
    /// When the peer was last noticed to have started anew.
    restarted: Option<Time>,
    /// When the next line is due while it is down, and how long after the one before.
    line: Option<(Time, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// By peer: bounded by the committee.
    links: BTreeMap<ReplicaId, Link>,
    /// Links whose state differs from what was told.
    untold: usize,
    look_at: Time,
    /// A link has come up since lives were compared.
    is_new: bool,
}

impl Links {
    /// The link to a peer is up or down.
    pub(super) fn changed(&mut self, now: Time, peer: ReplicaId, is_up: bool) -> Option<String> {
        let link = self.links.entry(peer).or_default();
        link.is_up = is_up;
        link.line = None;
        self.is_new |= is_up;
        let rare = if is_up { &mut link.ups } else { &mut link.downs };
        rare.note();
        let line = link.tell(now, peer);
        self.count_untold();
        line
    }

    /// Lines about links whose last change is not told, once the silence is over; asked after each pass.
    pub(super) fn untold(&mut self, now: Time) -> Vec<String> {
        if self.untold == 0 {
            return Vec::new();
        }
        let lines = self.links.iter_mut().filter(|(_, link)| link.is_up != link.told_up);
        let lines = lines.filter_map(|(peer, link)| link.tell(now, *peer)).collect();
        self.count_untold();
        lines
    }

    /// Lines about peers that have opened an earlier life than one that was heard; asked after each pass. `peers` says more.
    pub(super) fn earlier_lives(
        &mut self,
        now: Time,
        peers: impl FnOnce() -> Vec<PeerStatus>,
    ) -> Vec<String> {
        if !std::mem::take(&mut self.is_new) {
            return Vec::new();
        }
        peers().iter().filter_map(|peer| self.earlier_life(now, peer)).collect()
    }

    fn earlier_life(&mut self, now: Time, peer: &PeerStatus) -> Option<String> {
        let link = self.links.entry(peer.id).or_default();
        let latest = link.life;
        link.life = latest.max(peer.incarnation);
        if peer.incarnation >= latest || !peer.connected {
            return None;
        }
        let often = of_how_many(link.earlier.happened(now)?);
        let (id, life) = (peer.id, peer.incarnation.0);
        Some(format!(
            "replica {id} counts {life} openings, after {latest}{often}: an old copy was put in the place of its disk, or somebody \
             else has its key. It has said more than its disk knows and must not take part: stop it",
            latest = latest.0
        ))
    }

    fn count_untold(&mut self) {
        self.untold = self.links.values().filter(|link| link.is_up != link.told_up).count();
    }

    /// Frames of a lane are lost for good, `from` a number `to` another. Warns unless a restart explains it.
    pub(super) fn lost(
        &mut self,
        now: Time,
        peer: ReplicaId,
        (direction, lane): (Direction, Lane),
        (from, to): (u64, u64),
    ) -> Option<Told> {
        let link = self.links.entry(peer).or_default();
        match direction {
            Direction::Incoming if to == u64::MAX => {
                if link.restarted.replace(now) == Some(now) {
                    return None;
                }
                let often = of_how_many(link.restarts.happened(now)?);
                Some(Told::Usual(format!("replica {peer} has started anew{often}")))
            }
            // It was meant for the life before: the peer has forgotten it with everything else.
            Direction::Outgoing if link.restarted == Some(now) => None,
            // It was sent before this replica had started.
            Direction::Incoming if from == 0 => None,
            Direction::Outgoing => {
                let often = of_how_many(link.losses.happened(now)?);
                Some(Told::Bad(format!(
                    "replica {peer} was away for long, or takes in too little: what waited for it on lane {lane:?} was dropped{often}"
                )))
            }
            Direction::Incoming => {
                let often = of_how_many(link.losses.happened(now)?);
                Some(Told::Bad(format!(
                    "frames of replica {peer} on lane {lane:?} were lost{often}: it has dropped them"
                )))
            }
        }
    }

    /// Lines about links that do not come, where `is_any_down`; asked after each pass. `peers` says more.
    pub(super) fn missing(
        &mut self,
        now: Time,
        is_any_down: bool,
        peers: impl FnOnce() -> Vec<PeerStatus>,
    ) -> Vec<String> {
        if !is_any_down || now < self.look_at {
            return Vec::new();
        }
        self.look_at = now.plus(LOOK_NS);
        let down = peers().into_iter().filter(|peer| !peer.connected);
        down.filter_map(|peer| self.missing_one(now, &peer)).collect()
    }

    fn missing_one(&mut self, now: Time, peer: &PeerStatus) -> Option<String> {
        let link = self.links.entry(peer.id).or_default();
        let (due, pause) = link.line.unwrap_or((peer.since.plus(FIRST_LINE_NS), FIRST_LINE_NS));
        if now < due {
            link.line = Some((due, pause));
            return None;
        }
        let pause = pause.saturating_mul(2).min(LINES_APART_NS_MAX);
        link.line = Some((now.plus(pause), pause));
        let (id, address) = (peer.id, peer.address);
        let since = humantime::format_duration(Duration::from_secs(now.since(peer.since) / 1_000_000_000));
        let why = match (peer.dials, peer.dial_error.as_str(), peer.last_refusal.as_str()) {
            (true, "", "") => format!("its address is {address}"),
            (true, "", refusal) => format!("at {address}, the last connection ended: {refusal}"),
            (true, error, _) => format!("connecting to {address} fails: {error}"),
            (false, _, "") => format!(
                "it is the one that connects, and has not come; it is to run on {address}, and needs the address of this replica"
            ),
            (false, _, refusal) => {
                format!("it is the one that connects, and its last connection ended: {refusal}")
            }
        };
        Some(format!("no link to replica {id} for {since}: {why}; next such line in {}", seconds(pause)))
    }
}

impl Link {
    /// A line where what was told last is no longer true, or has changed often since.
    fn tell(&mut self, now: Time, peer: ReplicaId) -> Option<String> {
        let rare = if self.is_up { &mut self.ups } else { &mut self.downs };
        let often = of_how_many(rare.tell(now)?);
        self.told_up = self.is_up;
        Some(format!("the link to replica {peer} is {}{often}", if self.is_up { "up" } else { "down" }))
    }
}

/// The level of a line.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// It belongs to the usual course of things.
    Usual(String),
    /// Somebody should look at it.
    Bad(String),
}

fn seconds(ns: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(ns / 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::super::rare::LINE_EVERY_NS;
    use super::*;

    const CONSENSUS: Lane = Lane::Consensus;

    fn down(dials: bool, dial_error: &str, last_refusal: &str) -> PeerStatus {
        PeerStatus {
            id: ReplicaId(2),
            connected: false,
            urgent: false,
            since: Time(0),
            incarnation: Incarnation::ZERO,
            connections: 0,
            frames_in: 0,
            bytes_in: 0,
            bytes_out: 0,
            queued_bytes: 0,
            resend_bytes: 0,
            last_refusal: last_refusal.to_owned(),
            address: "127.0.0.1:9".parse().unwrap(),
            dials,
            dial_error: dial_error.to_owned(),
        }
    }

    #[test]
    fn a_link_that_does_not_come_is_told_at_growing_intervals() {
        let mut links = Links::default();
        let mut times = Vec::new();
        for second in 0..4_000u64 {
            let lines = links.missing(Time(second * 1_000_000_000), true, || vec![down(true, "refused", "")]);
            times.extend(lines.iter().map(|_| second));
        }
        assert_eq!(times, [5, 15, 35, 75, 155, 315, 635, 1_235, 1_835, 2_435, 3_035, 3_635]);
        let line = links.missing(Time(9_000_000_000_000), true, || vec![down(true, "refused", "")]);
        let words = "no link to replica 2 for 2h 30m: connecting to 127.0.0.1:9 fails: refused; next such line in 10m";
        assert_eq!(line, [words]);
    }

    #[test]
    fn the_reason_is_told_from_either_end() {
        let line = |peer: PeerStatus| {
            let mut links = Links::default();
            links.missing(Time(5_000_000_000), true, || vec![peer]).concat()
        };
        for (peer, expected) in [
            (down(true, "", ""), "its address is 127.0.0.1:9"),
            (down(true, "", "another cluster"), "the last connection ended: another cluster"),
            (
                down(false, "", ""),
                "it is the one that connects, and has not come; it is to run on 127.0.0.1:9",
            ),
            (down(false, "", "malformed hello"), "its last connection ended: malformed hello"),
        ] {
            let line = line(peer);
            assert!(line.starts_with("no link to replica 2 for 5s: ") && line.contains(expected), "{line}");
        }
    }

    #[test]
    fn nothing_is_looked_at_while_all_links_are_up_and_not_more_often_than_needed() {
        let mut links = Links::default();
        assert!(links.missing(Time(5_000_000_000), false, || unreachable!()).is_empty());
        let mut looks = 0;
        for pass in 0..100u64 {
            links.missing(Time(pass * 100_000_000), true, || {
                looks += 1;
                Vec::new()
            });
        }
        assert_eq!(looks, 10);
    }

    #[test]
    fn up_and_down_are_told_at_once_and_many_changes_do_not_fill_the_log() {
        let mut links = Links::default();
        let mut changed = |now, peer, is_up| links.changed(Time(now), ReplicaId(peer), is_up);
        assert_eq!(changed(1, 2, true).unwrap(), "the link to replica 2 is up");
        assert_eq!(changed(2, 2, false).unwrap(), "the link to replica 2 is down");
        assert!((3..100).all(|now| changed(now, 2, now % 2 == 1).is_none()));
        assert!(changed(3, 3, true).is_some(), "one peer hides no other");
        changed(101, 2, true);
        assert!(links.untold(Time(102)).is_empty());
        let line = links.untold(Time(2 + LINE_EVERY_NS)).concat();
        assert!(line.starts_with("the link to replica 2 is up (50 times since"), "{line}");
        assert!(links.untold(Time(3 + 2 * LINE_EVERY_NS)).is_empty(), "it was told");
    }

    #[test]
    fn a_restart_is_no_loss() {
        let mut links = Links::default();
        let mut lost =
            |now, direction, numbers| links.lost(Time(now), ReplicaId(2), (direction, CONSENSUS), numbers);
        let usual = Some(Told::Usual("replica 2 has started anew".to_owned()));
        assert_eq!(lost(1, Direction::Incoming, (7, u64::MAX)), usual);
        assert_eq!(lost(1, Direction::Outgoing, (3, 9)), None, "meant for the life before");
        assert_eq!(lost(1, Direction::Incoming, (0, u64::MAX)), None, "the next lane");
        assert_eq!(lost(2, Direction::Incoming, (0, 9)), None, "sent before this replica had started");
        assert!(matches!(lost(3, Direction::Incoming, (4, 9)), Some(Told::Bad(_))));
        assert_eq!(lost(4, Direction::Outgoing, (4, 9)), None, "one line in a while");
        assert!(matches!(lost(4 + LINE_EVERY_NS, Direction::Outgoing, (4, 9)), Some(Told::Bad(_))));
    }

    #[test]
    fn an_earlier_life_is_told_and_a_later_one_is_not() {
        let mut links = Links::default();
        let mut opens = |now, life| {
            links.changed(Time(now), ReplicaId(2), true);
            let peer = PeerStatus { connected: true, incarnation: Incarnation(life), ..down(true, "", "") };
            links.earlier_lives(Time(now), || vec![peer]).concat()
        };
        assert!([(1, 1), (2, 4), (3, 4), (4, 7)].iter().all(|(now, life)| opens(*now, *life).is_empty()));
        assert!(opens(5, 5).starts_with("replica 2 counts 5 openings, after 7: an old copy"));
        assert_eq!(opens(6, 5), "", "one line in a while");
        assert!(opens(5 + LINE_EVERY_NS, 6).starts_with("replica 2 counts 6 openings, after 7 (2 times"));
        assert!(links.earlier_lives(Time(1), || unreachable!()).is_empty(), "no link is new");
    }
}
