//! Twins scenarios: a part of all, for every protocol that works without any one of its replicas, and the failures that
//! they find.

use crate::chained_support::{Chained, HotStuff2};
use crate::support::{ask, begin, drop_frames, pbft, put, r, world_of};
use quorate_consensus::{Entry, Model};
use quorate_protocols::REGISTRY;
use quorate_sim::trace::Event;
use quorate_sim::twins::{Enumeration, Leaders, RangeResult, Sample, Scenario, ScenarioRun, run_range};
use quorate_sim::{Oracle, Settings, Who, World, sets_leaders};
use quorate_types::{ReplicaId, Time, View};
use std::cell::RefCell;
use std::rc::Rc;

fn ids(ids: &[u16]) -> Vec<ReplicaId> {
    ids.iter().copied().map(ReplicaId).collect()
}

/// Scenarios cut the network. A protocol that rests on a bound on delays does not survive that, and does not promise
/// to.
fn protocols() -> impl Iterator<Item = &'static Entry> {
    let suits = |entry: &&Entry| entry.spec.replaces_leader && entry.spec.model != Model::Synchrony;
    REGISTRY.iter().filter(suits)
}

fn assert_passes(entry: &Entry, all: &Enumeration, verdict: &RangeResult) {
    if let Some((number, failure)) = verdict.failures.first() {
        let (protocol, options) = (entry.spec.name, all.options());
        let scenario = all.scenario(*number);
        panic!(
            "{scenario}: {failure}; again: cargo run --release -- twins --protocol {protocol} {options} --scenario {number} --trace"
        );
    }
}

/// Runs a few scenarios from all over an enumeration.
fn a_part_of(entry: &Entry, all: &Enumeration, step: usize) -> RangeResult {
    let mut verdict = RangeResult::default();
    for number in (step as u64 / 2..all.len()).step_by(step) {
        verdict.run(entry, number, &all.scenario(number)).unwrap();
    }
    assert_passes(entry, all, &verdict);
    verdict
}

#[test]
fn part_of_all_scenarios_passes() {
    for entry in protocols() {
        let mut total = RangeResult::default();
        for twin in 0..4 {
            let twin = ids(&[twin]);
            let four = Enumeration::new(4, twin.clone(), 4, 2, Leaders::Own, None).unwrap();
            let three = Enumeration::new(4, twin, 3, 3, Leaders::Own, None).unwrap();
            // The steps are prime, so every view meets every partition.
            total.merge(a_part_of(entry, &four, 1_297));
            total.merge(a_part_of(entry, &three, 1_361));
        }
        let leaders = if sets_leaders(entry) { Leaders::Drawn } else { Leaders::Own };
        let seven =
            Enumeration::new(4, ids(&[0]), 7, 3, leaders, Some(Sample { count: 40, seed: 1 })).unwrap();
        let verdict = run_range(entry, &seven, 0..40).unwrap();
        assert_passes(entry, &seven, &verdict);
        total.merge(verdict);
        assert!(total.runs > 440 && total.heights > total.runs * 2, "{}: {total:?}", entry.spec.name);
        // Nearly every scenario is played to its end.
        assert!(total.complete * 10 > total.runs * 9, "{}: {total:?}", entry.spec.name);
    }
}

/// HotStuff-2 with short timers. The partition of a view lasts 60 ms from the first replica's entry on, and the leaders of both
/// halves have to propose within it, also after their wait in views that follow failed ones.
const SHORT_WAITS: Entry = Entry {
    exam_params: |delta_ns, guarded| {
        let mut params = (HOTSTUFF2.exam_params)(delta_ns, guarded)?;
        params.insert("d0_ms".to_owned(), 20.into());
        Ok(params)
    },
    ..HOTSTUFF2
};

const HOTSTUFF2: Entry = Entry::of::<Chained<HotStuff2>>();

/// Two pairs of twins are more than four replicas tolerate: each half of the cluster decides for itself.
#[test]
fn two_pairs_of_twins_break_agreement() {
    for entry in protocols() {
        let entry = if entry.spec.name == SHORT_WAITS.spec.name { &SHORT_WAITS } else { entry };
        // If later blocks decide a block, the parts have to last for some views.
        let views = if entry.spec.rotates_leaders { 8 } else { 1 };
        let lasting = |all: &Enumeration| {
            let mut verdict = RangeResult::default();
            for number in (0..all.len()).filter(|number| all.is_first(&all.scenario(*number))) {
                let mut scenario = all.scenario(number);
                scenario.rounds = scenario.rounds.iter().cycle().take(views).cloned().collect();
                verdict.run(entry, number, &scenario).unwrap();
            }
            verdict
        };
        let all = Enumeration::new(4, ids(&[0, 1]), 1, 2, Leaders::Own, None).unwrap();
        let verdict = lasting(&all);
        let found: Vec<u64> = verdict
            .failures
            .iter()
            .filter(|(_, failure)| failure.oracle == Oracle::Agreement)
            .map(|(number, _)| *number)
            .collect();
        let none = || panic!("{}: no scenario breaks agreement: {verdict:?}", entry.spec.name);
        let first = *found.first().unwrap_or_else(none);
        let before = (0..=first).filter(|number| all.is_first(&all.scenario(*number))).count();
        println!(
            "{}: {} of {} scenarios break agreement, the first is the {before}.: {}",
            entry.spec.name,
            found.len(),
            verdict.runs,
            all.scenario(first)
        );
        assert!(before <= 16, "{}: {before}", entry.spec.name);
        // With one pair of twins the same partitions break nothing.
        let one = Enumeration::new(4, ids(&[0]), 1, 2, Leaders::Own, None).unwrap();
        assert_passes(entry, &one, &lasting(&one));
    }
}

#[test]
fn scenario_determines_a_run() {
    let all =
        Enumeration::new(4, ids(&[2]), 3, 3, Leaders::Drawn, Some(Sample { count: 3, seed: 9 })).unwrap();
    for number in 0..3 {
        let run = |is_read: bool| {
            let mut play = ScenarioRun::new(pbft(), &all.scenario(number)).unwrap();
            if is_read {
                play.world().trace().set_reader(|line| assert!(!line.what.is_empty()));
            }
            (play.run(), play.world().trace_hash())
        };
        assert_eq!(run(false), run(true), "scenario {number}");
    }
}

/// In the first act no message crosses between parts, not even between the two replicas of a twin. In the second act
/// every replica receives messages of all but the leader.
#[test]
fn no_message_crosses_the_parts_of_a_scenario() {
    let all = Enumeration::new(4, ids(&[3]), 1, 3, Leaders::Own, None).unwrap();
    let mut long = 0;
    for number in 0..all.len() {
        let scenario = all.scenario(number);
        let events = Rc::new(RefCell::new(Vec::new()));
        let mut play = ScenarioRun::new(pbft(), &scenario).unwrap();
        let written = Rc::clone(&events);
        play.world().trace().set_reader(move |event| written.borrow_mut().push(event.clone()));
        assert_eq!(play.run().failure, None);
        drop(play);
        let (mut first, mut second) = (0, 0);
        let events = events.borrow();
        let acts = events.iter().take_while(|event| event.what != "heals");
        for event in acts.filter(|event| event.what == "sends") {
            for (from, to) in heard(&scenario, event) {
                let joins = scenario.rounds[0].partition.joins(from, to);
                // No replica has left the view before.
                if event.at < Time(50_000_000) {
                    first += 1;
                    assert!(joins, "{scenario}: {event}");
                } else if event.at > Time(60_000_000) {
                    second += u32::from(!joins);
                    let kinds = ["pre-prepare", "prepare", "commit", "status"];
                    assert!(
                        from != 0 || !kinds.contains(&event.details.kind.as_str()),
                        "{scenario}: {event}"
                    );
                }
            }
        }
        assert!(first > 0, "{scenario}");
        // If all replicas were done in the first act, no second one follows.
        let heals = events.iter().find(|event| event.what == "heals").unwrap().at;
        let is_long = heals > Time(60_000_000);
        assert!(second > 0 || !is_long || scenario.rounds[0].partition.parts() == 1, "{scenario}");
        long += u32::from(is_long && second > 0);
    }
    assert!(long > 5, "{long}");
}

/// Returns the pairs of nodes, sender and receiver, of a message between replicas.
fn heard(scenario: &Scenario, event: &Event) -> Vec<(usize, usize)> {
    let said = |words: &str| event.details.text.split(", ").any(|said| said == words);
    let (Who::Replica(from), true) =
        (event.who, event.details.to.iter().all(|to| matches!(to, Who::Replica(_))))
    else {
        return Vec::new();
    };
    let second = if said("as the second half of the twin") { "'" } else { "" };
    let from = scenario.named(&format!("{from}{second}")).unwrap();
    let halves = event.details.to.iter().flat_map(|to| [format!("{to}"), format!("{to}'")]);
    let meant = halves.filter_map(|half| {
        let node = scenario.named(half.strip_prefix('r').unwrap())?;
        let is_twin = half.ends_with('\'') || scenario.named(&format!("{}'", &half[1..])).is_some();
        (!is_twin || said(&format!("for {half}"))).then_some(node)
    });
    meant.map(|to| (from, to)).collect()
}

/// The leaders of the first views are set; then the replicas take turns.
#[test]
fn leaders_of_the_first_views_can_be_set() {
    let sets = protocols().filter(|entry| sets_leaders(entry) && !entry.spec.rotates_leaders);
    for entry in sets {
        let mut world = world_of(entry, 1, |settings| settings.parameters.leaders = ids(&[2, 3]));
        begin(&mut world);
        let mut led = Vec::new();
        for number in 0..3 {
            let status = world.status(r(1)).unwrap();
            assert_eq!(status.view, View(number));
            led.push(status.leader.0);
            drop_frames(&mut world, move |frame| frame.from == status.leader);
            ask(&mut world, 0, put("k", number));
        }
        assert_eq!(led, [2, 3, 2], "{}", entry.spec.name);
    }
    // With rotating leaders the first views have the set leaders.
    for entry in protocols().filter(|entry| sets_leaders(entry) && entry.spec.rotates_leaders) {
        let mut world = world_of(entry, 1, |settings| settings.parameters.leaders = ids(&[2, 3, 3]));
        let proposers = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&proposers);
        world.hook(move |_, frame| {
            if frame.content.kind.as_str() == "propose" {
                seen.borrow_mut().push((frame.content.view.0, frame.from.0));
            }
            quorate_sim::Verdict::Pass
        });
        begin(&mut world);
        // It is the number of views that a request needs.
        ask(&mut world, 0, put("k", 1));
        let mut led = proposers.borrow().clone();
        led.dedup();
        assert_eq!(led[..4], [(1, 2), (2, 3), (3, 3), (4, 0)], "{}", entry.spec.name);
    }
    for (entry, leader, why) in [
        (quorate_protocols::find("echo").unwrap(), 1, "echo chooses its leaders itself"),
        (pbft(), 4, "replicas below 4"),
    ] {
        let mut settings = Settings::new(entry, 1);
        settings.parameters.leaders = ids(&[leader]);
        let refused = World::new(settings).err().unwrap().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
