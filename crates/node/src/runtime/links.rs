//! Lines about links: connected peers, missing peers with the reason, and lost frames.
//!
//! A change has a line at once; of many changes in a short time the last one has another. A missing link has lines with the
//! address and the reason, at growing intervals.

use super::log_lines::{LineLimiter, LogLine};
use quorate_net::Direction;
use quorate_net::reactor::PeerStatus;
use quorate_types::wire::Lane;
use quorate_types::{Incarnation, ReplicaId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The period of the check of links that are down.
const CHECK_NS: u64 = 1_000_000_000;
/// The time for which a link is down before its first line: a cluster that starts, or a node that restarts, needs none.
const FIRST_LINE_NS: u64 = 5_000_000_000;
/// The longest time between two lines about one link.
const LINES_APART_NS_MAX: u64 = 600_000_000_000;

/// The state of the link to one peer.
#[derive(Debug, Default)]
struct PeerLink {
    is_up: bool,
    /// Whether the last line reports that the link is up.
    reported_up: bool,
    ups: LineLimiter,
    downs: LineLimiter,
    losses: LineLimiter,
    restarts: LineLimiter,
    /// The latest incarnation of the peer that was seen.
    incarnation: Incarnation,
    earlier: LineLimiter,
    /// The time at which a new incarnation of the peer was last noticed.
    restarted: Option<Time>,
    /// The time of the next line while the link is down, and the pause before it.
    line: Option<(Time, u64)>,
}

/// The links to all peers.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// By peer: bounded by the committee.
    links: BTreeMap<ReplicaId, PeerLink>,
    /// The number of links whose state differs from the reported one.
    unreported: usize,
    check_at: Time,
    /// Whether a link has come up since incarnations were compared.
    is_new: bool,
}

impl Links {
    /// Notes that the link to a peer is up or down.
    pub(super) fn changed(&mut self, now: Time, peer: ReplicaId, is_up: bool) -> Option<LogLine> {
        let link = self.links.entry(peer).or_default();
        link.is_up = is_up;
        link.line = None;
        self.is_new |= is_up;
        link.changes().count();
        let line = link.report(now, peer);
        self.count_unreported();
        line
    }

    /// Returns lines about links whose last change has no line yet, once the silence is over. Called after each pass.
    pub(super) fn unreported(&mut self, now: Time) -> Vec<LogLine> {
        if self.unreported == 0 {
            return Vec::new();
        }
        let links = self.links.iter_mut().filter(|(_, link)| link.is_up != link.reported_up);
        let lines = links.filter_map(|(peer, link)| link.report(now, *peer)).collect();
        self.count_unreported();
        lines
    }

    /// Returns lines about peers that have an earlier incarnation than one that was seen. Called after each pass. `peers`
    /// gives the details.
    pub(super) fn earlier_incarnations(
        &mut self,
        now: Time,
        peers: impl FnOnce() -> Vec<PeerStatus>,
    ) -> Vec<LogLine> {
        if !std::mem::take(&mut self.is_new) {
            return Vec::new();
        }
        peers().iter().filter_map(|peer| self.earlier_incarnation(now, peer)).collect()
    }

    fn earlier_incarnation(&mut self, now: Time, peer: &PeerStatus) -> Option<LogLine> {
        let link = self.links.entry(peer.id).or_default();
        let latest = link.incarnation;
        link.incarnation = latest.max(peer.incarnation);
        if peer.incarnation >= latest || !peer.connected {
            return None;
        }
        let often = link.earlier.count_due(now)?;
        let (id, found, latest) = (peer.id, peer.incarnation.0, latest.0);
        Some(LogLine::Warn(format!(
            "replica {id} counts {found} openings, after {latest}{often}: an old copy is in the place of its disk, or another \
             machine uses its key. It has sent more than its disk has and must take no part: stop it"
        )))
    }

    fn count_unreported(&mut self) {
        self.unreported = self.links.values().filter(|link| link.is_up != link.reported_up).count();
    }

    /// Notes that frames of a lane are lost for good, from number `from` to number `to`. Warns unless a restart explains it.
    pub(super) fn lost(
        &mut self,
        now: Time,
        peer: ReplicaId,
        (direction, lane): (Direction, Lane),
        (from, to): (u64, u64),
    ) -> Option<LogLine> {
        let link = self.links.entry(peer).or_default();
        match direction {
            Direction::Incoming if to == u64::MAX => {
                if link.restarted.replace(now) == Some(now) {
                    return None;
                }
                let often = link.restarts.count_due(now)?;
                Some(LogLine::Info(format!("replica {peer} has restarted{often}")))
            }
            // The frames were for the incarnation before, which the peer has left.
            Direction::Outgoing if link.restarted == Some(now) => None,
            // The frames were sent before this replica had started.
            Direction::Incoming if from == 0 => None,
            Direction::Outgoing => {
                let often = link.losses.count_due(now)?;
                Some(LogLine::Warn(format!(
                    "replica {peer} was away for long, or reads too slowly: this replica dropped frames for it on lane {lane:?}{often}"
                )))
            }
            Direction::Incoming => {
                let often = link.losses.count_due(now)?;
                Some(LogLine::Warn(format!(
                    "frames of replica {peer} on lane {lane:?} were lost{often}: the peer has dropped them"
                )))
            }
        }
    }

    /// Returns lines about missing links if `is_any_down`. Called after each pass. `peers` gives the details.
    pub(super) fn missing(
        &mut self,
        now: Time,
        is_any_down: bool,
        peers: impl FnOnce() -> Vec<PeerStatus>,
    ) -> Vec<LogLine> {
        if !is_any_down || now < self.check_at {
            return Vec::new();
        }
        self.check_at = now.plus(CHECK_NS);
        let down = peers().into_iter().filter(|peer| !peer.connected);
        down.filter_map(|peer| self.missing_one(now, &peer)).collect()
    }

    fn missing_one(&mut self, now: Time, peer: &PeerStatus) -> Option<LogLine> {
        let link = self.links.entry(peer.id).or_default();
        let (due, pause) = link.line.unwrap_or((peer.since.plus(FIRST_LINE_NS), FIRST_LINE_NS));
        if now < due {
            link.line = Some((due, pause));
            return None;
        }
        let pause = pause.saturating_mul(2).min(LINES_APART_NS_MAX);
        link.line = Some((now.plus(pause), pause));
        let (id, address) = (peer.id, peer.address);
        let (since, next) = (seconds(now.since(peer.since)), seconds(pause));
        let reason = match (peer.dials, peer.dial_error.as_str(), peer.last_refusal.as_str()) {
            (true, "", "") => format!("its address is {address}"),
            (true, "", refusal) => format!("at {address}, the last connection ended: {refusal}"),
            (true, error, _) => format!("connecting to {address} fails: {error}"),
            (false, _, "") => format!(
                "that replica connects to this one and has not done so; it has to run on {address} and needs the address of this replica"
            ),
            (false, _, refusal) => {
                format!("that replica connects to this one, and its last connection ended: {refusal}")
            }
        };
        Some(LogLine::Warn(format!(
            "no link to replica {id} for {since}: {reason}; next such line in {next}"
        )))
    }
}

impl PeerLink {
    /// Returns the limiter of lines about the present state.
    fn changes(&mut self) -> &mut LineLimiter {
        if self.is_up { &mut self.ups } else { &mut self.downs }
    }

    /// Returns a line when the reported state is not the present one, or has changed often since.
    fn report(&mut self, now: Time, peer: ReplicaId) -> Option<LogLine> {
        let often = self.changes().due(now)?;
        self.reported_up = self.is_up;
        let state = if self.is_up { "up" } else { "down" };
        Some(LogLine::Info(format!("the link to replica {peer} is {state}{often}")))
    }
}

fn seconds(ns: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(ns / 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::super::log_lines::LINE_EVERY_NS;
    use super::*;

    fn texts(lines: Vec<LogLine>) -> String {
        lines.iter().map(LogLine::text).collect()
    }

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
            delay_ns: 0,
            dials,
            dial_error: dial_error.to_owned(),
        }
    }

    #[test]
    fn missing_link_is_reported_at_growing_intervals() {
        let mut links = Links::default();
        let mut times = Vec::new();
        for second in 0..4_000u64 {
            let lines = links.missing(Time(second * 1_000_000_000), true, || vec![down(true, "refused", "")]);
            times.extend(lines.iter().map(|_| second));
        }
        assert_eq!(times, [5, 15, 35, 75, 155, 315, 635, 1_235, 1_835, 2_435, 3_035, 3_635]);
        let lines = links.missing(Time(9_000_000_000_000), true, || vec![down(true, "refused", "")]);
        let expected = "no link to replica 2 for 2h 30m: connecting to 127.0.0.1:9 fails: refused; next such line in 10m";
        assert_eq!(lines, [LogLine::Warn(expected.to_owned())]);
    }

    #[test]
    fn reason_of_a_missing_link_is_reported_at_either_end() {
        let line = |peer: PeerStatus| {
            let mut links = Links::default();
            texts(links.missing(Time(5_000_000_000), true, || vec![peer]))
        };
        for (peer, expected) in [
            (down(true, "", ""), "its address is 127.0.0.1:9"),
            (down(true, "", "another cluster"), "the last connection ended: another cluster"),
            (
                down(false, "", ""),
                "that replica connects to this one and has not done so; it has to run on 127.0.0.1:9",
            ),
            (down(false, "", "malformed hello"), "its last connection ended: malformed hello"),
        ] {
            let line = line(peer);
            assert!(line.starts_with("no link to replica 2 for 5s: ") && line.contains(expected), "{line}");
        }
    }

    #[test]
    fn links_are_checked_once_a_second_while_one_is_down() {
        let mut links = Links::default();
        assert!(links.missing(Time(5_000_000_000), false, || unreachable!()).is_empty());
        let mut checks = 0;
        for pass in 0..100u64 {
            links.missing(Time(pass * 100_000_000), true, || {
                checks += 1;
                Vec::new()
            });
        }
        assert_eq!(checks, 10);
    }

    #[test]
    fn link_changes_are_reported_at_once_and_do_not_fill_the_log() {
        let mut links = Links::default();
        let mut changed = |now, peer, is_up| links.changed(Time(now), ReplicaId(peer), is_up);
        assert_eq!(changed(1, 2, true).unwrap().text(), "the link to replica 2 is up");
        assert_eq!(changed(2, 2, false).unwrap().text(), "the link to replica 2 is down");
        assert!((3..100).all(|now| changed(now, 2, now % 2 == 1).is_none()));
        assert!(changed(3, 3, true).is_some(), "one peer hides no other");
        changed(101, 2, true);
        assert!(links.unreported(Time(102)).is_empty());
        let line = texts(links.unreported(Time(2 + LINE_EVERY_NS)));
        assert!(line.starts_with("the link to replica 2 is up (50 times since"), "{line}");
        assert!(links.unreported(Time(3 + 2 * LINE_EVERY_NS)).is_empty(), "the change was reported");
    }

    #[test]
    fn restart_is_no_loss() {
        let mut links = Links::default();
        let mut lost =
            |now, direction, numbers| links.lost(Time(now), ReplicaId(2), (direction, CONSENSUS), numbers);
        let usual = Some(LogLine::Info("replica 2 has restarted".to_owned()));
        assert_eq!(lost(1, Direction::Incoming, (7, u64::MAX)), usual);
        assert_eq!(lost(1, Direction::Outgoing, (3, 9)), None, "frames for the incarnation before");
        assert_eq!(lost(1, Direction::Incoming, (0, u64::MAX)), None, "the next lane");
        assert_eq!(lost(2, Direction::Incoming, (0, 9)), None, "sent before this replica had started");
        assert!(matches!(lost(3, Direction::Incoming, (4, 9)), Some(LogLine::Warn(_))));
        assert_eq!(lost(4, Direction::Outgoing, (4, 9)), None, "few lines");
        assert!(matches!(lost(4 + LINE_EVERY_NS, Direction::Outgoing, (4, 9)), Some(LogLine::Warn(_))));
    }

    #[test]
    fn earlier_incarnation_is_reported_and_a_later_one_is_not() {
        let mut links = Links::default();
        let mut opens = |now, incarnation| {
            links.changed(Time(now), ReplicaId(2), true);
            let peer =
                PeerStatus { connected: true, incarnation: Incarnation(incarnation), ..down(true, "", "") };
            texts(links.earlier_incarnations(Time(now), || vec![peer]))
        };
        assert!(
            [(1, 1), (2, 4), (3, 4), (4, 7)]
                .iter()
                .all(|(now, incarnation)| opens(*now, *incarnation).is_empty())
        );
        assert!(opens(5, 5).starts_with("replica 2 counts 5 openings, after 7: an old copy is"));
        assert_eq!(opens(6, 5), "", "few lines");
        assert!(opens(5 + LINE_EVERY_NS, 6).starts_with("replica 2 counts 6 openings, after 7 (2 times"));
        assert!(links.earlier_incarnations(Time(1), || unreachable!()).is_empty(), "no link is new");
    }
}
