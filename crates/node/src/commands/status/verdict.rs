//! Whether the cluster is available: the first line of `quorate status`, and its exit code with `--ready`.
//!
//! It is, when enough replicas are up, make progress, and are connected to each other: each of them to enough others of
//! them. A link counts when both of its ends say that it is there.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    n: usize,
    enough: usize,
    /// The replicas that carry the cluster.
    serving: BTreeSet<usize>,
    /// Why each of the others does not, in the order of their ids.
    others: Vec<(usize, String)>,
}

impl Verdict {
    /// Judges the statuses of all replicas, in the order of their ids, where `enough` must serve.
    pub(super) fn of(replicas: &[Value], enough: usize) -> Self {
        let mut others = Vec::new();
        let mut serving = BTreeSet::new();
        for (id, replica) in replicas.iter().enumerate() {
            match fault(replica) {
                Some(why) => others.push((id, why)),
                None => {
                    serving.insert(id);
                }
            }
        }
        // A replica that is connected to too few of those that are left is left out, until none is.
        let links = |id: usize, among: &BTreeSet<usize>| {
            among.iter().filter(|other| **other != id && are_linked(replicas, id, **other)).count()
        };
        let needed = enough.saturating_sub(1);
        while let Some(id) = serving.iter().copied().find(|id| links(*id, &serving) < needed) {
            let count = links(id, &serving);
            serving.remove(&id);
            others.push((id, format!("connected to {count} others that serve, {needed} needed")));
        }
        others.sort();
        Self { n: replicas.len(), enough, serving, others }
    }

    /// Whether enough replicas serve.
    pub(super) fn is_available(&self) -> bool {
        self.serving.len() >= self.enough
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_available() { "AVAILABLE" } else { "NOT AVAILABLE" };
        write!(f, "{verdict}: {} of {} replicas, {} needed", self.serving.len(), self.n, self.enough)?;
        for (at, (id, why)) in self.others.iter().enumerate() {
            write!(f, "{}replica {id}: {why}", if at == 0 { " (" } else { "; " })?;
        }
        if self.others.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// Why a replica does not serve, by itself.
fn fault(replica: &Value) -> Option<String> {
    let text = |name: &str| replica.get(name).and_then(Value::as_str);
    if replica.get("up") != Some(&Value::Bool(true)) {
        return Some(format!("no answer: {}", text("error").unwrap_or("?")));
    }
    if replica.get("progress") == Some(&Value::Bool(true)) {
        return None;
    }
    if text("alarm").is_some() {
        return Some("it takes part no more, see its alarm".to_owned());
    }
    let number = |path: &str| replica.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    match text("state") {
        None | Some("current" | "catching up") => Some(format!(
            "nothing executed for {} s, although {} bundles wait",
            number("/stalled_ms") / 1_000,
            number("/pool/bundles")
        )),
        Some(state) => Some(state.to_owned()),
    }
}

/// Whether two replicas both say that their link is there.
fn are_linked(replicas: &[Value], one: usize, other: usize) -> bool {
    let says = |from: usize, to: usize| {
        let peers = replicas.get(from).and_then(|replica| replica.get("peers")).and_then(Value::as_array);
        peers.into_iter().flatten().any(|peer| {
            let id = peer.get("id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
            id == Some(to) && peer.get("connected") == Some(&Value::Bool(true))
        })
    };
    says(one, other) && says(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A replica that makes progress, with links to these.
    fn serves(id: usize, links: &[usize]) -> Value {
        let peer = |peer: usize| json!({"id": peer, "connected": links.contains(&peer)});
        let peers: Vec<Value> = (0..4).filter(|peer| *peer != id).map(peer).collect();
        json!({"id": id, "up": true, "state": "current", "progress": true, "alarm": null, "peers": peers})
    }

    fn all() -> Vec<Value> {
        (0..4).map(|id| serves(id, &[0, 1, 2, 3])).collect()
    }

    #[test]
    fn four_that_are_connected_serve() {
        assert_eq!(Verdict::of(&all(), 3).to_string(), "AVAILABLE: 4 of 4 replicas, 3 needed");
    }

    #[test]
    fn replicas_that_are_down_are_named_and_one_too_many_ends_the_service() {
        let mut replicas = all();
        replicas[3] = json!({"id": 3, "up": false, "progress": false, "error": "connection refused"});
        let verdict = Verdict::of(&replicas, 3);
        let line = "AVAILABLE: 3 of 4 replicas, 3 needed (replica 3: no answer: connection refused)";
        assert!(verdict.is_available());
        assert_eq!(verdict.to_string(), line);
        replicas[1]["progress"] = json!(false);
        replicas[1]["stalled_ms"] = json!(7_500);
        replicas[1]["pool"] = json!({"bundles": 2});
        let verdict = Verdict::of(&replicas, 3);
        assert!(!verdict.is_available());
        assert!(verdict.to_string().starts_with("NOT AVAILABLE: 0 of 4 replicas, 3 needed (replica 0: "));
        let why = "replica 1: nothing executed for 7 s, although 2 bundles wait";
        assert!(verdict.to_string().contains(why), "{verdict}");
    }

    #[test]
    fn replicas_without_links_to_a_quorum_do_not_serve_however_well_they_are() {
        let replicas: Vec<Value> = (0..4).map(|id| serves(id, &[])).collect();
        let verdict = Verdict::of(&replicas, 3);
        assert!(!verdict.is_available());
        let why = "replica 2: connected to 0 others that serve, 2 needed";
        assert!(verdict.to_string().contains(why), "{verdict}");
    }

    #[test]
    fn a_link_counts_where_both_ends_say_so_and_among_those_that_serve() {
        // 0, 1 and 2 are connected to each other; 3 says that it is connected to all.
        let mut replicas: Vec<Value> = (0..3).map(|id| serves(id, &[0, 1, 2])).collect();
        replicas.push(serves(3, &[0, 1, 2]));
        let verdict = Verdict::of(&replicas, 3);
        assert_eq!((verdict.is_available(), verdict.serving.contains(&3)), (true, false));
        // Two pairs: each has a link, and none a quorum.
        let pairs = [[1], [0], [3], [2]];
        let replicas: Vec<Value> = pairs.iter().enumerate().map(|(id, links)| serves(id, links)).collect();
        assert!(!Verdict::of(&replicas, 3).is_available());
        assert!(Verdict::of(&replicas, 2).is_available());
    }

    #[test]
    fn an_alarm_of_a_replica_that_serves_changes_nothing() {
        let mut replicas = all();
        replicas[0]["alarms"] = json!(["replica 2 says another state"]);
        assert!(Verdict::of(&replicas, 3).is_available(), "a liar can raise it");
        (replicas[0]["alarm"], replicas[0]["progress"]) = (json!("stopped"), json!(false));
        let verdict = Verdict::of(&replicas, 3).to_string();
        assert!(verdict.ends_with("(replica 0: it takes part no more, see its alarm)"), "{verdict}");
    }
}
