//! Tests of counts, symmetry and files. Tests with protocols are in `quorate-protocols`.

use super::symmetry::Symmetry;
use super::{Enumeration, Leaders, Partition, Round, Sample, Scenario, from_json, to_json};
use quorate_types::ReplicaId;
use std::collections::BTreeSet;

fn ids(ids: &[u16]) -> Vec<ReplicaId> {
    ids.iter().copied().map(ReplicaId).collect()
}

fn all(twins: &[u16], views: usize, parts: usize, leaders: Leaders) -> Enumeration {
    Enumeration::new(4, ids(twins), views, parts, leaders, None).unwrap()
}

/// The counts are sums of Stirling numbers of the second kind.
#[test]
fn every_partition_comes_once() {
    for (nodes, parts, count) in [(5, 1, 1), (5, 2, 16), (5, 3, 41), (5, 5, 52), (6, 2, 32), (1, 3, 1)] {
        let all = Partition::all(nodes, parts);
        assert_eq!(all.len(), count, "{nodes} nodes, {parts} parts");
        assert_eq!(all[0], Partition::together(nodes));
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), count);
        assert!(all.is_sorted());
        assert!(all.iter().all(|partition| partition.parts() <= parts && partition.nodes() == nodes));
        // Any assignment of numbers gives one of the partitions.
        for number in 0..nodes.pow(nodes as u32) {
            let numbers: Vec<usize> = (0..nodes).map(|at| number / nodes.pow(at as u32) % nodes).collect();
            let partition = Partition::of(&numbers).unwrap();
            assert_eq!(all.contains(&partition), partition.parts() <= parts, "{numbers:?}");
            let joined = |a: usize, b: usize| partition.joins(a, b) == (numbers[a] == numbers[b]);
            assert!((0..nodes).all(|a| (0..nodes).all(|b| joined(a, b))), "{numbers:?}");
        }
    }
}

#[test]
fn every_scenario_comes_once() {
    for (views, parts, count) in [(4, 2, 65_536), (3, 3, 68_921), (1, 2, 16), (0, 2, 1)] {
        assert_eq!(all(&[3], views, parts, Leaders::Own).len(), count);
    }
    let all = all(&[2], 3, 2, Leaders::Set(ids(&[1, 0, 2])));
    let scenarios: BTreeSet<Scenario> = (0..all.len()).map(|number| all.scenario(number)).collect();
    assert_eq!(scenarios.len(), 4_096);
    assert!(scenarios.iter().all(|scenario| scenario.leaders() == ids(&[1, 0, 2])));
}

/// A drawn scenario depends on seed and number alone.
#[test]
fn drawn_scenarios_are_reproducible() {
    let drawn = |leaders, seed| {
        Enumeration::new(4, ids(&[1]), 7, 3, leaders, Some(Sample { count: 500, seed })).unwrap()
    };
    let (one, other) = (drawn(Leaders::Drawn, 5), drawn(Leaders::Drawn, 6));
    let scenarios: BTreeSet<Scenario> = (0..500).map(|number| one.scenario(number)).collect();
    assert_eq!((scenarios.len(), one.len()), (500, 500));
    assert_eq!(one.scenario(77), drawn(Leaders::Drawn, 5).scenario(77));
    assert!((0..500).all(|number| !scenarios.contains(&other.scenario(number))));
    for id in ids(&[0, 1, 2, 3]) {
        assert!(scenarios.iter().filter(|scenario| scenario.leaders().contains(&id)).count() > 350);
    }
    assert!(scenarios.iter().any(|scenario| scenario.rounds[6].partition.parts() == 3));
    assert_eq!(drawn(Leaders::Own, 5).scenario(3).leaders(), []);
}

#[test]
fn impossible_enumerations_are_refused() {
    let all = |twins: &[u16], views, leaders| Enumeration::new(4, ids(twins), views, 2, leaders, None);
    for (bad, why) in [
        (all(&[4], 1, Leaders::Own), "replicas below 4"),
        (all(&[1, 1], 1, Leaders::Own), "replicas below 4"),
        (all(&[1], 1, Leaders::Set(ids(&[4]))), "leader is not below 4"),
        (all(&[1], 2, Leaders::Set(ids(&[1]))), "1 leaders for 2 views"),
        (all(&[1], 17, Leaders::Own), "too many scenarios"),
        (all(&[1], 2, Leaders::Drawn), "drawn only where"),
        (Enumeration::new(16, ids(&[1]), 1, 2, Leaders::Own, None), "17 nodes"),
    ] {
        assert!(bad.as_ref().is_err_and(|bad| bad.to_string().contains(why)), "{why}: {bad:?}");
    }
}

/// Returns a partition without numbers.
fn as_sets(partition: &Partition) -> BTreeSet<BTreeSet<usize>> {
    partition.members().into_iter().map(BTreeSet::from_iter).collect()
}

fn orders(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in items.iter().enumerate() {
        let rest = [&items[..at], &items[at + 1..]].concat();
        all.extend(orders(&rest).into_iter().map(|rest| [&[*first], &rest[..]].concat()));
    }
    all
}

/// Returns all renamings that keep halves of twins together and leaders in place. Without set leaders, every replica
/// keeps its place.
fn allowed(scenario: &Scenario) -> Vec<Vec<usize>> {
    let owner = |node: usize| scenario.owner(node).unwrap();
    let nodes: Vec<usize> = (0..scenario.nodes()).collect();
    let is_set = scenario.rounds.iter().all(|round| round.leader.is_some());
    let mut orders = orders(&nodes);
    orders.retain(|names| {
        nodes.iter().all(|a| {
            let is_leader = scenario.rounds.iter().any(|round| round.leader == Some(owner(*a)));
            let stays = owner(names[*a]) == owner(*a);
            let together =
                nodes.iter().all(|b| (owner(*a) == owner(*b)) == (owner(names[*a]) == owner(names[*b])));
            together && (stays || (is_set && !is_leader))
        })
    });
    orders
}

type Sets = Vec<BTreeSet<BTreeSet<usize>>>;

/// Returns all equal scenarios under all renamings.
fn orbit(scenario: &Scenario) -> BTreeSet<Sets> {
    let rename = |names: &Vec<usize>| -> Sets {
        let part = |part: &BTreeSet<usize>| part.iter().map(|node| names[*node]).collect();
        scenario.rounds.iter().map(|round| as_sets(&round.partition).iter().map(part).collect()).collect()
    };
    allowed(scenario).iter().map(rename).collect()
}

/// Returns the first of all scenarios that equal this one but for names.
fn first_like(scenario: &Scenario) -> Scenario {
    let rename = |names: &Vec<usize>| -> Vec<Round> {
        let rounds = scenario.rounds.iter();
        rounds.map(|round| Round { partition: round.partition.renamed(names), ..*round }).collect()
    };
    let rounds = Symmetry::of(scenario).names().iter().map(rename).min().unwrap();
    Scenario { rounds, ..scenario.clone() }
}

/// Exactly one of all scenarios that are equal but for names is kept.
#[test]
fn skipped_scenarios_equal_kept_ones() {
    for (twins, views, parts, leaders, ways) in [
        (&[3][..], 2, 3, Leaders::Own, 2),
        (&[0], 2, 2, Leaders::Set(ids(&[0, 0])), 2 * 6),
        (&[3], 2, 2, Leaders::Set(ids(&[1, 1])), 2 * 2),
        (&[3], 2, 2, Leaders::Set(ids(&[1, 3])), 2 * 2),
        (&[0, 2], 1, 3, Leaders::Own, 4),
        (&[0, 2], 1, 3, Leaders::Set(ids(&[1])), 4 * 2),
        (&[0, 2], 2, 2, Leaders::Set(ids(&[2, 3])), 4),
    ] {
        let all = all(twins, views, parts, leaders.clone());
        let case = format!("twins {twins:?}, leaders {leaders:?}");
        assert_eq!(Symmetry::of(&all.scenario(0)).names().len(), ways, "{case}");
        let (mut kept, mut orbits) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..all.len() {
            let scenario = all.scenario(number);
            let orbit = orbit(&scenario);
            let sets = |scenario: &Scenario| -> Sets {
                scenario.rounds.iter().map(|round| as_sets(&round.partition)).collect()
            };
            let first = first_like(&scenario);
            assert!(orbit.contains(&sets(&first)), "{case}: {scenario} is not {first}");
            assert!(all.is_first(&first), "{case}: {first}");
            assert_eq!(all.is_first(&scenario), first == scenario, "{case}: {scenario}");
            if all.is_first(&scenario) {
                kept.insert(sets(&scenario));
            }
            orbits.insert(orbit);
        }
        assert_eq!(kept.len(), orbits.len(), "{case}");
        assert!(orbits.iter().all(|orbit| orbit.intersection(&kept).count() == 1), "{case}");
    }
}

/// With one twin about half of all scenarios are skipped: all form pairs but those that the exchange of both halves
/// does not change.
#[test]
fn about_half_is_skipped() {
    for (views, parts, alike) in [(4, 2, 8u64.pow(4)), (3, 3, 15u64.pow(3))] {
        let all = all(&[1], views, parts, Leaders::Own);
        let kept = (0..all.len()).filter(|number| all.is_first(&all.scenario(*number))).count() as u64;
        assert_eq!(kept, (all.len() + alike) / 2, "{views} views");
    }
}

#[test]
fn written_scenarios_are_read_back() {
    let (whole, drawn) = (
        all(&[2], 2, 3, Leaders::Set(ids(&[3, 1]))),
        Enumeration::new(4, ids(&[0, 3]), 7, 3, Leaders::Drawn, Some(Sample { count: 50, seed: 1 })).unwrap(),
    );
    let mut scenarios: Vec<Scenario> =
        (0..whole.len()).step_by(7).map(|number| whole.scenario(number)).collect();
    scenarios.extend((0..50).map(|number| drawn.scenario(number)));
    scenarios.push(all(&[1], 3, 2, Leaders::Own).scenario(1_234));
    scenarios.push(all(&[1], 0, 2, Leaders::Own).scenario(0));
    assert_eq!(from_json(&to_json(&scenarios)), Ok(scenarios));
    assert_eq!(from_json(&to_json(&[])), Ok(Vec::new()));
}

/// The format may not change, because users keep files.
#[test]
fn file_format_does_not_change() {
    let partition = |numbers: &[usize]| Partition::of(numbers).unwrap();
    let scenario = Scenario {
        n: 4,
        twins: ids(&[3]),
        rounds: vec![
            Round { leader: Some(ReplicaId(0)), partition: partition(&[0, 0, 1, 0, 1]) },
            Round { leader: None, partition: partition(&[0, 0, 0, 0, 0]) },
        ],
    };
    let text = r#"{
  "format": "quorate twins 1",
  "scenarios": [
    {"n":4,"twins":[3],"views":[{"leader":0,"parts":[["0","1","3"],["2","3'"]]},{"parts":[["0","1","2","3","3'"]]}]}
  ]
}
"#;
    assert_eq!(to_json(std::slice::from_ref(&scenario)), text);
    assert_eq!(scenario.to_string(), "view 0 led by 0: 0 1 3 | 2 3', view 1: 0 1 2 3 3'");
    assert_eq!(from_json(text), Ok(vec![scenario]));
}

/// Replicas and views count from 1 in relab's files; the first replicas are the twins.
#[test]
fn generated_relab_files_are_read() {
    let scenarios = from_json(include_str!("relab/numbers.json")).unwrap();
    let shown: Vec<String> = scenarios.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "view 0 led by 0: 0 1 2 | 3 0', view 1 led by 0: 0 1 2 3 0', view 2 led by 3: 0 2 | 1 3 0'",
            "view 0 led by 1: 0 3 | 1 2 0', view 1 led by 2: 0 | 1 2 3 0', view 2 led by 0: 0 3 0' | 1 2",
        ]
    );
    assert_eq!(scenarios[0].twins, ids(&[0]));
    let scenarios = from_json(include_str!("relab/ids.json")).unwrap();
    assert_eq!(scenarios[0].to_string(), "view 0 led by 1: 0 1 2 | 3 0' 1'");
    assert_eq!(scenarios[0].twins, ids(&[0, 1]));
}

/// Go writes an empty list as `null`, and adds how scenarios were drawn.
#[test]
fn empty_list_of_relab_may_be_null_or_missing() {
    let file = |scenarios: &str| {
        let drawn = r#""partitions":3,"views":2,"ticks":100,"shuffle":true,"seed":-7"#;
        from_json(&format!(r#"{{"num_nodes":4,"num_twins":1,{drawn}{scenarios}}}"#))
    };
    let view = |partitions: &str| format!(r#","scenarios":[[{{"leader":2{partitions}}}]]"#);
    let empty = file(&view(r#","partitions":[[1,2,3],[],[4,5]]"#)).unwrap();
    assert_eq!(empty[0].rounds[0].partition.parts(), 2);
    assert_eq!(file(&view(r#","partitions":[[1,2,3],null,[4,5]]"#)), Ok(empty));
    let alone = file(&view(r#","partitions":[]"#)).unwrap();
    assert_eq!(alone[0].rounds[0].partition.parts(), 5);
    for same in [r#","partitions":null"#, "", r#","partitions":[null,null,null]"#] {
        assert_eq!(file(&view(same)), Ok(alone.clone()), "{same}");
    }
    let still = file(r#","scenarios":[[]]"#).unwrap();
    assert_eq!((still.len(), still[0].rounds.len()), (1, 0));
    assert_eq!(file(r#","scenarios":[null]"#), Ok(still));
    for none in ["", r#","scenarios":null"#, r#","scenarios":[]"#] {
        assert_eq!(file(none), Ok(Vec::new()), "{none}");
    }
}

#[test]
fn error_in_a_file_is_explained() {
    let own = |views: &str| {
        format!(r#"{{"format":"quorate twins 1","scenarios":[{{"n":4,"twins":[3],"views":[{views}]}}]}}"#)
    };
    let relab = |view: &str| format!(r#"{{"num_nodes":4,"num_twins":1,"scenarios":[[{view}]]}}"#);
    for (text, why) in [
        ("{".to_owned(), "EOF"),
        ("{}".to_owned(), "num_nodes"),
        (r#"{"format":"quorate twins 2","scenarios":[]}"#.to_owned(), "this version reads"),
        (own(r#"{"parts":[["0","1","2","3"]]}"#), "scenario 0: node \"3'\" stands in 0 parts"),
        (own(r#"{"parts":[["0","1","2","3","3'"],["1"]]}"#), "node \"1\" stands in 2 parts"),
        (own(r#"{"parts":[["0","1","2","3","2'"]]}"#), "no node \"2'\""),
        (own(r#"{"leader":4,"parts":[["0","1","2","3","3'"]]}"#), "view 0: its leader is not below 4"),
        (own(r#"{"parts":[],"part":1}"#), "unknown field"),
        (own("").replace("[3]", "[4]"), "replicas below 4"),
        (own("").replace("\"n\":4", "\"n\":99"), "100 nodes"),
        (relab(r#"{"leader":1,"partitions":[[1,2,3,4,5,6]]}"#), "no node 5"),
        (relab(r#"{"leader":1,"partitions":[[0]]}"#), "no node 0"),
        (relab(r#"{"leader":5,"partitions":[[1,2,3,4,5]]}"#), "leader is not below 4"),
        (relab(r#"{"leader":1,"partitions":[[{"ReplicaID":2,"TwinID":2}]]}"#), "no node 2'"),
    ] {
        let found = from_json(&text);
        assert!(found.as_ref().is_err_and(|bad| bad.to_string().contains(why)), "{text}: {found:?}");
    }
}
