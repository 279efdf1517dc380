//! The trace of a run: events for a reader.

use crate::support::{DELAY_NS, go, pbft, put, r, wait_for};
use expect_test::expect_file;
use quorate_protocols::pbft::{COMMIT, PREPARE};
use quorate_sim::seed::{ByzantineChoice, StandardRun};
use quorate_sim::trace::{EVENT_NAMES, Event, Pick, Trace, Who, heading};
use quorate_sim::{
    Bytes, Byzantine, Change, Costs, LinkConditions, NetworkFault, Places, Settings, Transport, Verdict,
    World,
};
use quorate_sim::{ms, secs};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The events that a reader has received.
type Events = Rc<RefCell<Vec<Event>>>;

fn trace() -> (Trace, Events) {
    let events = Events::default();
    let mut trace = Trace::default();
    let to = Rc::clone(&events);
    trace.set_reader(move |event| to.borrow_mut().push(event.clone()));
    (trace, events)
}

/// Returns a world in which a message takes a millisecond and nothing else takes time, with its events.
fn world(change: impl FnOnce(&mut Settings)) -> (World, Events) {
    let mut settings = Settings::new(pbft(), 7);
    settings.conditions = LinkConditions::constant(DELAY_NS);
    settings.costs = Costs::NONE;
    settings.transport = Transport::Datagrams;
    change(&mut settings);
    let (trace, events) = trace();
    (World::with_trace(settings, trace).unwrap(), events)
}

/// Renames digests to d1, d2 … in the order of their first appearance, because they differ with the keys of a world.
fn without_digests(lines: &[String]) -> String {
    let mut names = BTreeMap::new();
    let mut text = String::new();
    for line in lines {
        for word in line.split_inclusive(|end: char| !end.is_ascii_alphanumeric()) {
            let bare = word.trim_end_matches(|end: char| !end.is_ascii_alphanumeric());
            let is_digest = bare.len() == 8 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_digest {
                let next = names.len() + 1;
                let name = names.entry(bare.to_owned()).or_insert_with(|| format!("d{next}"));
                text.push_str(&format!("{name:<8}"));
                text.push_str(&word[8..]);
            } else {
                text.push_str(word);
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// The good case of one operation, from the call to the reply, as a stranger reads it.
#[test]
fn good_case_has_the_written_trace() {
    let (mut world, events) = world(|_| {});
    go(world.run_for(secs(1)), &world);
    let ids = world.submit(0, &[put("k1", 1)]);
    wait_for(&mut world, &ids, secs(1));
    go(world.run_for(ms(3)), &world);
    drop(world);
    let events = events.borrow();
    // Periodic messages are left out, because they do not belong to the operation.
    let is_of_it = |event: &&Event| !["status", "host.heights"].contains(&event.details.kind.as_str());
    let is_timer = |event: &&Event| event.what == "timer" && event.details.text.starts_with("Status");
    let of_it: Vec<&Event> = events.iter().filter(|event| event.at.0 >= secs(1)).filter(is_of_it).collect();
    // The number of earlier messages is a matter of chance.
    let first = of_it.iter().find_map(|event| event.number).unwrap();
    let mut lines = vec![heading()];
    for event in of_it.into_iter().filter(|event| !is_timer(event)) {
        let mut event = event.clone();
        event.number = event.number.map(|number| number - first + 1);
        // The content of a message is the concern of its own code.
        event.details.text = event.details.text.split(" {").next().unwrap_or_default().to_owned();
        lines.push(event.to_string());
    }
    expect_file!["traces/good-case.txt"].assert_eq(&without_digests(&lines));
}

/// A trace does not change the hash of a run or any other result. Its events are in order and explained, and every
/// message that arrives was sent.
#[test]
fn trace_changes_nothing_and_explains_every_event() {
    let known: BTreeSet<&str> = EVENT_NAMES.iter().map(|(word, _)| *word).collect();
    let mut words = BTreeSet::new();
    for seed in 0..8 {
        let hosts =
            if seed % 2 == 0 { ByzantineChoice::Drawn } else { ByzantineChoice::Many(Byzantine::Twin, 2) };
        let silent = StandardRun::with(pbft(), None, hosts, seed).unwrap().run();
        let (trace, events) = trace();
        let loud = StandardRun::with_trace(pbft(), None, hosts, seed, trace).unwrap().run();
        assert_eq!(silent, loud, "seed {seed}");
        let events = events.borrow();
        assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at), "seed {seed}: in the order of time");
        for event in events.iter() {
            assert!(known.contains(event.what), "seed {seed}: {event}");
            let is_arrival = ["gets", "hears"].contains(&event.what);
            assert!(!is_arrival || event.number.is_some(), "seed {seed}: {event} was never sent");
        }
        words.extend(events.iter().map(|event| event.what));
    }
    for word in ["sends", "gets", "refuses", "loses", "timer", "enters", "syncs", "begins", "ends", "crashes"]
    {
        assert!(words.contains(word), "{word}: {words:?}");
    }
    for word in ["starts", "behaves", "calls", "believes", "decides", "executes", "notes", "heals"] {
        assert!(words.contains(word), "{word}: {words:?}");
    }
}

/// On connections bytes are late or wait. Their messages arrive all the same, on the next connection if need be.
#[test]
fn trace_reports_the_fate_of_messages_on_connections() {
    let (mut world, events) = world(|settings| settings.transport = Transport::Links);
    go(world.run_for(secs(1)), &world);
    let one =
        |change| NetworkFault { from: Places::one(3), to: Places::ALL, both_ways: true, change, fault: None };
    let loss = world.begin_fault(one(Change::Lossy(400_000)));
    for value in 0..20 {
        let ids = world.submit(value % 4, &[put("k1", value)]);
        wait_for(&mut world, &ids, secs(3));
    }
    world.end_fault(loss);
    let cut = world.begin_fault(one(Change::Cut));
    let ids = world.submit(0, &[put("k1", "cut")]);
    wait_for(&mut world, &ids, secs(3));
    go(world.run_for(secs(6)), &world);
    world.end_fault(cut);
    go(world.run_for(secs(6)), &world);
    let now = world.now();
    drop(world);
    let events = events.borrow();
    for (word, reason) in
        [("resends", "loss"), ("stalls", "cut"), ("breaks", ""), ("dials", ""), ("link", "back")]
    {
        let found = events.iter().find(|event| event.what == word && event.details.text.contains(reason));
        assert!(found.is_some(), "{word} {reason}");
    }
    // Links report each loss: votes that were sent while nothing passed were read in the end.
    let gap = events.iter().any(|event| event.what == "link" && event.details.text.contains("gap"));
    let votes = events.iter().filter(|event| event.what == "sends" && event.details.kind == COMMIT.as_str());
    for vote in votes.filter(|vote| vote.at.plus(secs(5)) < now && !gap) {
        for to in &vote.details.to {
            let is_it =
                |event: &&Event| event.what == "gets" && event.number == vote.number && event.who == *to;
            assert!(events.iter().any(|event| is_it(&event)), "{vote} never reached {to}");
        }
    }
}

/// The trace reports the fate of each message that does not simply arrive, and the cause.
#[test]
fn trace_reports_the_fate_of_each_message() {
    let (mut world, events) = world(|_| {});
    go(world.run_for(secs(1)), &world);
    let mut prepares = 0;
    world.hook(move |_, frame| {
        prepares += u32::from(frame.content.kind == PREPARE);
        match (frame.content.kind == PREPARE, prepares) {
            (true, 1) => Verdict::Drop,
            (true, 2) => Verdict::Delay(ms(2)),
            (true, 3) => Verdict::Hold,
            (true, 4) => Verdict::Replace(Bytes::from_static(b"nonsense")),
            _ => Verdict::Pass,
        }
    });
    let ids = world.submit(0, &[put("k1", 1)]);
    wait_for(&mut world, &ids, secs(3));
    world.unhook();
    world.release();
    let change = Change::Lossy(1_000_000);
    let network_fault = world.begin_fault(NetworkFault {
        from: Places::one(3),
        to: Places::ALL,
        both_ways: true,
        change,
        fault: None,
    });
    let ids = world.submit(0, &[put("k1", 2)]);
    wait_for(&mut world, &ids, secs(3));
    world.end_fault(network_fault);
    drop(world);
    let events = events.borrow();
    let number = events.iter().find(|event| event.what == "drops").and_then(|event| event.number);
    let sending = events.iter().find(|event| event.what == "sends" && event.number == number).unwrap();
    assert_eq!(sending.details.kind, "prepare");
    for word in ["drops", "delays", "holds", "alters", "releases"] {
        let count = events.iter().filter(|event| event.what == word).count();
        assert_eq!(count, 1, "{word}");
    }
    let altered = events.iter().find(|event| event.what == "alters").unwrap();
    let got = events.iter().find(|event| event.what == "gets" && event.number == altered.number);
    assert_eq!(got.map(|event| event.details.kind.as_str()), Some("unknown"), "the altered message arrives");
    let refused =
        events.iter().find(|event| event.what == "refuses" && event.details.kind == "unknown").unwrap();
    assert_eq!(
        (refused.details.from, refused.details.text.as_str()),
        (altered.details.from, "malformed message")
    );
    let lost =
        events.iter().find(|event| event.what == "loses" && event.details.kind == COMMIT.as_str()).unwrap();
    assert!(lost.to_string().contains("loss"), "{lost}");
    let begins = events.iter().find(|event| event.what == "begins").unwrap();
    assert!(begins.to_string().ends_with("r3 <-> all, 100.0 %"), "{begins}");
    let ends = events.iter().find(|event| event.what == "ends").unwrap();
    assert_eq!((ends.number, &ends.details.text), (begins.number, &begins.details.text));
}

/// A filter leaves only the events that its terms name.
#[test]
fn filter_leaves_only_the_requested_events() {
    let (trace, events) = trace();
    let _ = StandardRun::with_trace(pbft(), None, ByzantineChoice::Drawn, 3, trace).unwrap().run();
    let events = events.borrow();
    let chosen = |terms: &str| -> Vec<&Event> {
        let pick: Pick = terms.parse().unwrap();
        events.iter().filter(|event| pick.takes(event)).collect()
    };
    let votes = chosen("r1,h7,prepare,commit");
    assert!(votes.len() >= 6, "{votes:?}");
    for event in votes {
        assert_eq!(event.details.height.map(|height| height.0), Some(7), "{event}");
        assert!(event.who == Who::Replica(r(1)) || event.who == Who::World, "{event}");
        assert!(["prepare", "commit"].contains(&event.details.kind.as_str()), "{event}");
    }
    assert_eq!(chosen("calls").len(), chosen("believes").len());
}
