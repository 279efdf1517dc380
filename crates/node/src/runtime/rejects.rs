//! Refusals, counted by source and reason for `status`, and the lines in the log about them.
//!
//! Strangers cannot make the table large: a network has one row for all its ports, and a limited number of networks have
//! a row of their own. Strangers never displace the rows of replicas. The first refusal of a source for a reason has a line
//! at once. Later ones share a line every few seconds, which gives their number.

use super::log_lines::{LINE_EVERY_NS, LineLimiter};
use quorate_net::reactor::Who;
use quorate_types::limits::{REJECT_PEERS_MAX, REJECT_REASONS_MAX};
use quorate_types::{ReplicaId, Time};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The source of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// This replica.
    Own,
    /// A replica.
    Replica(ReplicaId),
    /// A stranger from this network on the clients' port.
    Client(IpAddr),
    /// A stranger from this network on the peers' port.
    Stranger(IpAddr),
    /// All sources that came when the table was full.
    Others,
}

impl Origin {
    /// The row of a client's address.
    #[must_use]
    pub fn client(address: SocketAddr) -> Self {
        Self::Client(network(address))
    }
}

impl From<Who> for Origin {
    fn from(who: Who) -> Self {
        match who {
            Who::Replica(id) => Self::Replica(id),
            Who::Client(address) => Self::client(address),
            Who::Stranger(address) => Self::Stranger(network(address)),
        }
    }
}

/// Returns the part of an address that distinguishes parties. Ports and the lower half of an IPv6 address do not
/// distinguish them: one party has as many as it likes.
fn network(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut of = |role: &str, network: &IpAddr| match network {
            IpAddr::V4(address) => write!(f, "{role} {address}"),
            IpAddr::V6(address) => write!(f, "{role} {address}/64"),
        };
        match self {
            Self::Client(network) => of("client", network),
            Self::Stranger(network) => of("stranger", network),
            Self::Replica(id) => write!(f, "replica {id}"),
            Self::Own => f.write_str("self"),
            Self::Others => f.write_str(OTHERS),
        }
    }
}

/// The name of all reasons that came when a row was full.
const OTHERS: &str = "others";

/// The largest number of lines in [`LINE_EVERY_NS`] for all sources together.
const LINES_MAX: u32 = 100;

/// The refusals of one source for one reason.
#[derive(Debug, Default)]
struct RejectCount {
    count: u64,
    lines: LineLimiter,
}

/// The table of refusals.
#[derive(Debug, Default)]
pub struct Rejects {
    rows: BTreeMap<Origin, BTreeMap<&'static str, RejectCount>>,
    /// The number of rows of networks.
    addresses: usize,
    /// The number of lines in the present period.
    lines: u32,
    /// The end of the present period.
    lines_until: Time,
}

impl Rejects {
    /// Counts a refusal.
    pub fn count(&mut self, origin: Origin, reason: &'static str) {
        let cell = self.cell(origin, reason);
        cell.count = cell.count.saturating_add(1);
        cell.lines.count();
    }

    /// Counts a refusal. Returns the end of the line that is due for the log, which gives the number of refusals.
    pub fn count_due(&mut self, now: Time, origin: Origin, reason: &'static str) -> Option<String> {
        self.count(origin, reason);
        if now >= self.lines_until {
            (self.lines, self.lines_until) = (0, now.plus(LINE_EVERY_NS));
        }
        if self.lines >= LINES_MAX {
            return None;
        }
        let often = self.cell(origin, reason).lines.due(now)?;
        self.lines = self.lines.saturating_add(1);
        Some(often)
    }

    fn cell(&mut self, origin: Origin, reason: &'static str) -> &mut RejectCount {
        let mut origin = origin;
        if let Origin::Client(_) | Origin::Stranger(_) = origin
            && !self.rows.contains_key(&origin)
        {
            if self.addresses >= REJECT_PEERS_MAX {
                origin = Origin::Others;
            } else {
                self.addresses = self.addresses.saturating_add(1);
            }
        }
        let row = self.rows.entry(origin).or_default();
        let known = row.contains_key(reason) || row.len() < REJECT_REASONS_MAX;
        row.entry(if known { reason } else { OTHERS }).or_default()
    }

    /// Returns all counts, as `{source: {reason: count}}`.
    #[must_use]
    pub fn counts(&self) -> Map<String, Value> {
        let row = |row: &BTreeMap<&'static str, RejectCount>| {
            row.iter().map(|(reason, cell)| ((*reason).to_owned(), cell.count.into())).collect::<Map<_, _>>()
        };
        self.rows.iter().map(|(origin, cells)| (origin.to_string(), row(cells).into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn stranger(i: u32) -> Origin {
        Who::Stranger(SocketAddr::from((Ipv4Addr::from_bits(i), 7))).into()
    }

    fn sum(rejects: &Rejects) -> u64 {
        let rows = rejects.counts();
        let rows = rows.values().filter_map(Value::as_object);
        rows.flat_map(Map::values).filter_map(Value::as_u64).sum()
    }

    #[test]
    fn flood_of_sources_does_not_grow_the_table_and_hides_no_replica() {
        let mut rejects = Rejects::default();
        for i in 0..10_000 {
            rejects.count(stranger(i), "frame too large");
        }
        assert_eq!(rejects.counts().len(), REJECT_PEERS_MAX + 1);
        assert_eq!(sum(&rejects), 10_000, "every refusal is counted");
        rejects.count(Origin::Replica(ReplicaId(2)), "stale");
        assert_eq!(rejects.counts()["replica 2"]["stale"], 1);
    }

    #[test]
    fn ports_and_interface_numbers_do_not_distinguish_sources() {
        let name = |text: &str| Origin::client(text.parse().unwrap()).to_string();
        assert_eq!(name("10.0.0.1:1"), "client 10.0.0.1");
        assert_eq!(name("[::ffff:10.0.0.1]:2"), "client 10.0.0.1");
        assert_eq!(name("[2001:db8:1:2:3:4:5:6]:2"), "client 2001:db8:1:2::/64");
        assert_eq!(
            Origin::from(Who::Stranger("10.0.0.1:1".parse().unwrap())).to_string(),
            "stranger 10.0.0.1"
        );
    }

    #[test]
    fn first_refusal_has_a_line_and_later_ones_share_one() {
        let mut rejects = Rejects::default();
        let (a, b) = (stranger(1), stranger(2));
        assert_eq!(rejects.count_due(Time(0), a, "x"), Some(String::new()));
        assert_eq!(rejects.count_due(Time(1), a, "x"), None);
        assert_eq!(rejects.count_due(Time(2), a, "y"), Some(String::new()), "another reason");
        assert_eq!(rejects.count_due(Time(3), b, "x"), Some(String::new()), "another source");
        for i in 4..1_000 {
            assert_eq!(rejects.count_due(Time(i), a, "x"), None);
        }
        assert_eq!(
            rejects.count_due(Time(LINE_EVERY_NS), a, "x"),
            Some(" (998 times since the last such line)".to_owned())
        );
        assert_eq!(rejects.count_due(Time(LINE_EVERY_NS + 1), a, "x"), None);
    }

    #[test]
    fn lines_about_all_sources_together_are_bounded() {
        let mut rejects = Rejects::default();
        let lines = (0..50_000).filter(|i| rejects.count_due(Time(7), stranger(*i), "x").is_some());
        assert_eq!(lines.count(), 100);
        let later = Time(7 + LINE_EVERY_NS);
        let expected = format!(" ({} times since the last such line)", 50_000 - 1_024 + 1);
        assert_eq!(rejects.count_due(later, stranger(5_000), "x"), Some(expected));
    }
}
