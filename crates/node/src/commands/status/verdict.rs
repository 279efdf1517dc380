//! Whether the cluster is available: the first line of `quorate status`, and its exit code with `--ready`.
//!
//! The cluster is available when enough replicas are up, make progress, and are connected to enough others of these
//! replicas. A link counts when both ends report it.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The verdict on a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Availability {
    n: usize,
    /// The number of replicas that must serve.
    enough: usize,
    /// The replicas that serve.
    serving: BTreeSet<usize>,
    /// The other replicas, each with the reason, in the order of ids.
    others: Vec<(usize, String)>,
}

impl Availability {
    /// Judges the statuses of all replicas, in the order of ids. `enough` of them must serve.
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
        // A replica with too few links to the others that serve does not serve. Its links are lost for the others, so the loop
        // repeats.
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

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_available() { "AVAILABLE" } else { "NOT AVAILABLE" };
        write!(f, "{verdict}: {} of {} replicas, {} needed", self.serving.len(), self.n, self.enough)?;
        for (at, (id, why)) in self.others.iter().enumerate() {
            write!(f, "{}replica {id}: {why}", if at == 0 { " (" } else { "; " })?;
        }
        if self.others.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// Returns the reason why a replica alone does not serve, if any.
fn fault(replica: &Value) -> Option<String> {
    let text = |name: &str| replica.get(name).and_then(Value::as_str);
    if replica.get("up") != Some(&Value::Bool(true)) {
        return Some(format!("no answer: {}", text("error").unwrap_or("?")));
    }
    if replica.get("progress") == Some(&Value::Bool(true)) {
        return None;
    }
    if text("alarm").is_some() {
        return Some("it takes no part any more, see its alarm".to_owned());
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

/// Whether two replicas both report their link.
fn are_linked(replicas: &[Value], one: usize, other: usize) -> bool {
    let reports = |from: usize, to: usize| {
        let peers = replicas.get(from).and_then(|replica| replica.get("peers")).and_then(Value::as_array);
        peers.into_iter().flatten().any(|peer| {
            let id = peer.get("id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
            id == Some(to) && peer.get("connected") == Some(&Value::Bool(true))
        })
    };
    reports(one, other) && reports(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a replica that makes progress, with these links.
    fn serves(id: usize, links: &[usize]) -> Value {
        let peer = |peer: usize| json!({"id": peer, "connected": links.contains(&peer)});
        let peers: Vec<Value> = (0..4).filter(|peer| *peer != id).map(peer).collect();
        json!({"id": id, "up": true, "state": "current", "progress": true, "alarm": null, "peers": peers})
    }

    fn all() -> Vec<Value> {
        (0..4).map(|id| serves(id, &[0, 1, 2, 3])).collect()
    }

    #[test]
    fn four_connected_replicas_serve() {
        assert_eq!(Availability::of(&all(), 3).to_string(), "AVAILABLE: 4 of 4 replicas, 3 needed");
    }

    #[test]
    fn replicas_that_are_down_are_named_and_too_many_make_the_cluster_unavailable() {
        let mut replicas = all();
        replicas[3] = json!({"id": 3, "up": false, "progress": false, "error": "connection refused"});
        let verdict = Availability::of(&replicas, 3);
        let line = "AVAILABLE: 3 of 4 replicas, 3 needed (replica 3: no answer: connection refused)";
        assert!(verdict.is_available());
        assert_eq!(verdict.to_string(), line);
        replicas[1]["progress"] = json!(false);
        replicas[1]["stalled_ms"] = json!(7_500);
        replicas[1]["pool"] = json!({"bundles": 2});
        let verdict = Availability::of(&replicas, 3);
        assert!(!verdict.is_available());
        assert!(verdict.to_string().starts_with("NOT AVAILABLE: 0 of 4 replicas, 3 needed (replica 0: "));
        let why = "replica 1: nothing executed for 7 s, although 2 bundles wait";
        assert!(verdict.to_string().contains(why), "{verdict}");
    }

    #[test]
    fn replicas_without_links_to_a_quorum_do_not_serve() {
        let replicas: Vec<Value> = (0..4).map(|id| serves(id, &[])).collect();
        let verdict = Availability::of(&replicas, 3);
        assert!(!verdict.is_available());
        let why = "replica 2: connected to 0 others that serve, 2 needed";
        assert!(verdict.to_string().contains(why), "{verdict}");
    }

    #[test]
    fn link_counts_if_both_ends_report_it_and_serve() {
        // 0, 1 and 2 are connected to each other; 3 reports links to all.
        let mut replicas: Vec<Value> = (0..3).map(|id| serves(id, &[0, 1, 2])).collect();
        replicas.push(serves(3, &[0, 1, 2]));
        let verdict = Availability::of(&replicas, 3);
        assert_eq!((verdict.is_available(), verdict.serving.contains(&3)), (true, false));
        // Two pairs: each pair has a link, and no quorum exists.
        let pairs = [[1], [0], [3], [2]];
        let replicas: Vec<Value> = pairs.iter().enumerate().map(|(id, links)| serves(id, links)).collect();
        assert!(!Availability::of(&replicas, 3).is_available());
        assert!(Availability::of(&replicas, 2).is_available());
    }

    #[test]
    fn alarm_of_a_replica_that_serves_does_not_change_the_verdict() {
        let mut replicas = all();
        replicas[0]["alarms"] = json!(["states differ"]);
        assert!(Availability::of(&replicas, 3).is_available(), "a liar can raise it");
        (replicas[0]["alarm"], replicas[0]["progress"]) = (json!("stopped"), json!(false));
        let verdict = Availability::of(&replicas, 3).to_string();
        assert!(verdict.ends_with("(replica 0: it takes no part any more, see its alarm)"), "{verdict}");
    }
}
