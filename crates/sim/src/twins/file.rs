//! Scenarios as JSON: our own format, and that of relab/hotstuff. `docs/twins.md` describes every field.
//!
//! Fields about the generation of relab's scenarios, and about their duration in ticks, are ignored.

use super::partition::Partition;
use super::scenario::{BadScenario, Round, Scenario};
use quorate_types::ReplicaId;
use serde::{Deserialize, Serialize};

/// The value of `format`.
const FORMAT: &str = "quorate twins 1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnFile {
    format: String,
    scenarios: Vec<OwnScenario>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnScenario {
    n: usize,
    twins: Vec<u16>,
    views: Vec<OwnView>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leader: Option<u16>,
    parts: Vec<Vec<String>>,
}

/// The relevant fields of a file. Generators write more.
#[derive(Deserialize)]
struct RelabFile {
    num_nodes: usize,
    num_twins: usize,
    #[serde(default)]
    scenarios: List<List<RelabView>>,
}

#[derive(Deserialize)]
struct RelabView {
    leader: u16,
    #[serde(default)]
    partitions: List<List<RelabNode>>,
}

/// A list that may be missing. Go writes an empty one as `null`.
#[derive(Deserialize)]
#[serde(transparent)]
struct List<T>(Option<Vec<T>>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.unwrap_or_default().into_iter()
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RelabNode {
    Number(usize),
    Numbered {
        #[serde(rename = "NetworkID")]
        number: usize,
    },
    Twin {
        #[serde(rename = "ReplicaID")]
        replica: usize,
        #[serde(rename = "TwinID")]
        twin: usize,
    },
}

/// Writes scenarios in our own format.
#[must_use]
pub fn to_json(scenarios: &[Scenario]) -> String {
    let mut lines = format!("{{\n  \"format\": \"{FORMAT}\",\n  \"scenarios\": [");
    for (at, scenario) in scenarios.iter().enumerate() {
        lines.push_str(if at == 0 { "\n    " } else { ",\n    " });
        // Numbers and strings can always be serialized.
        lines.push_str(&serde_json::to_string(&own(scenario)).unwrap_or_default());
    }
    lines.push_str("\n  ]\n}\n");
    lines
}

fn own(scenario: &Scenario) -> OwnScenario {
    let names = |nodes: Vec<usize>| nodes.into_iter().map(|node| scenario.name(node)).collect();
    let view = |round: &Round| OwnView {
        leader: round.leader.map(|leader| leader.0),
        parts: round.partition.members().into_iter().map(names).collect(),
    };
    OwnScenario {
        n: scenario.n,
        twins: scenario.twins.iter().map(|twin| twin.0).collect(),
        views: scenario.rounds.iter().map(view).collect(),
    }
}

/// Reads scenarios in either format.
///
/// # Errors
/// Returns an error with its cause and scenario.
pub fn from_json(text: &str) -> Result<Vec<Scenario>, BadScenario> {
    let bad = |why: serde_json::Error| BadScenario(why.to_string());
    let value: serde_json::Value = serde_json::from_str(text).map_err(bad)?;
    let scenarios: Vec<Result<Scenario, BadScenario>> = if value.get("format").is_some() {
        // Parsing the text instead of the value gives errors with positions.
        let file: OwnFile = serde_json::from_str(text).map_err(bad)?;
        if file.format != FORMAT {
            return Err(BadScenario(format!("format {:?}; this version reads {FORMAT:?}", file.format)));
        }
        file.scenarios.into_iter().map(read_own).collect()
    } else {
        let file: RelabFile = serde_json::from_str(text).map_err(bad)?;
        let read = |views| read_relab(file.num_nodes, file.num_twins, views);
        file.scenarios.into_iter().map(read).collect()
    };
    let mut good = Vec::new();
    for (at, scenario) in scenarios.into_iter().enumerate() {
        let checked = scenario.and_then(|scenario| scenario.check().map(|()| scenario));
        good.push(checked.map_err(|BadScenario(why)| BadScenario(format!("scenario {at}: {why}")))?);
    }
    Ok(good)
}

fn read_own(read: OwnScenario) -> Result<Scenario, BadScenario> {
    let twins = read.twins.into_iter().map(ReplicaId).collect();
    let mut scenario = Scenario { n: read.n, twins, rounds: Vec::new() };
    scenario.check()?;
    for view in read.views {
        let mut parts = Vec::new();
        for names in &view.parts {
            let nodes = names.iter().map(|name| {
                scenario.named(name).ok_or_else(|| BadScenario(format!("there is no node {name:?}")))
            });
            parts.push(nodes.collect::<Result<Vec<usize>, _>>()?);
        }
        let partition = partition(&scenario, &parts, Absent::Refused)?;
        scenario.rounds.push(Round { leader: view.leader.map(ReplicaId), partition });
    }
    Ok(scenario)
}

fn read_relab(n: usize, twins: usize, views: List<RelabView>) -> Result<Scenario, BadScenario> {
    let ids = (0..u16::try_from(twins).unwrap_or(u16::MAX)).map(ReplicaId);
    let mut scenario = Scenario { n, twins: ids.collect(), rounds: Vec::new() };
    scenario.check()?;
    for view in views {
        let mut parts = Vec::new();
        for nodes in view.partitions {
            let nodes = nodes.into_iter().map(|node| relab_node(n, twins, &node));
            parts.push(nodes.collect::<Result<Vec<usize>, _>>()?);
        }
        let partition = partition(&scenario, &parts, Absent::Alone)?;
        scenario.rounds.push(Round { leader: view.leader.checked_sub(1).map(ReplicaId), partition });
    }
    Ok(scenario)
}

/// Returns our number of a node.
fn relab_node(n: usize, twins: usize, node: &RelabNode) -> Result<usize, BadScenario> {
    let (replica, second) = match *node {
        RelabNode::Number(number) | RelabNode::Numbered { number } => {
            let at = number.checked_sub(1).ok_or_else(|| BadScenario("there is no node 0".to_owned()))?;
            if at < twins.saturating_mul(2) {
                (at / 2, at % 2 == 1)
            } else {
                (at.saturating_sub(twins), false)
            }
        }
        RelabNode::Twin { replica, twin } => (replica.saturating_sub(1), twin == 2),
    };
    if replica >= n || (second && replica >= twins) {
        return Err(BadScenario(format!(
            "there is no node {}{}",
            replica + 1,
            if second { "'" } else { "" }
        )));
    }
    Ok(if second { n.saturating_add(replica) } else { replica })
}

/// The treatment of nodes that are in no part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Refused,
    Alone,
}

fn partition(scenario: &Scenario, parts: &[Vec<usize>], absent: Absent) -> Result<Partition, BadScenario> {
    let mut numbers = Vec::new();
    for node in 0..scenario.nodes() {
        let holders = || parts.iter().enumerate().filter(|(_, nodes)| nodes.contains(&node));
        let number = match (holders().next(), holders().count()) {
            (Some((at, _)), 1) => at,
            (None, _) if absent == Absent::Alone => parts.len().saturating_add(node),
            (_, count) => {
                let name = scenario.name(node);
                return Err(BadScenario(format!("node {name:?} stands in {count} parts")));
            }
        };
        numbers.push(number);
    }
    Partition::of(&numbers).ok_or_else(|| BadScenario("too many nodes".to_owned()))
}
