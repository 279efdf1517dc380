//! What a run tells who reads along.

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

/// What somebody was told who reads along.
type Told = Rc<RefCell<Vec<Event>>>;

fn trace() -> (Trace, Told) {
    let told = Told::default();
    let mut trace = Trace::default();
    let to = Rc::clone(&told);
    trace.set_reader(move |event| to.borrow_mut().push(event.clone()));
    (trace, told)
}

/// A world in which a message takes a millisecond and nothing else takes time, and what it tells.
fn world(change: impl FnOnce(&mut Settings)) -> (World, Told) {
    let mut settings = Settings::new(pbft(), 7);
    settings.conditions = LinkConditions::constant(DELAY_NS);
    settings.costs = Costs::NONE;
    settings.transport = Transport::Datagrams;
    change(&mut settings);
    let (trace, told) = trace();
    (World::with_trace(settings, trace).unwrap(), told)
}

/// Digests differ with the keys of a world: they become d1, d2 … in the order in which they are named.
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

/// The good case of one operation, from the call to the answer: what a stranger reads.
#[test]
fn the_good_case_reads_like_this() {
    let (mut world, told) = world(|_| {});
    go(world.run_for(secs(1)), &world);
    let ids = world.submit(0, &[put("k1", 1)]);
    wait_for(&mut world, &ids, secs(1));
    go(world.run_for(ms(3)), &world);
    drop(world);
    let told = told.borrow();
    // What replicas tell each other now and then is left out: it does not belong to the operation.
    let is_of_it = |event: &&Event| !["status", "host.heights"].contains(&event.details.kind.as_str());
    let is_timer = |event: &&Event| event.what == "timer" && event.details.text.starts_with("Status");
    let of_it: Vec<&Event> = told.iter().filter(|event| event.at.0 >= secs(1)).filter(is_of_it).collect();
    // How many messages came before is a matter of chance.
    let first = of_it.iter().find_map(|event| event.number).unwrap();
    let mut lines = vec![heading()];
    for event in of_it.into_iter().filter(|event| !is_timer(event)) {
        let mut event = event.clone();
        event.number = event.number.map(|number| number - first + 1);
        // The inside of a message is its own code's affair.
        event.details.text = event.details.text.split(" {").next().unwrap_or_default().to_owned();
        lines.push(event.to_string());
    }
    expect_file!["traces/good-case.txt"].assert_eq(&without_digests(&lines));
}

/// The hash of a run, and all else that it comes to, is the same whether or not anybody reads along. What is told is in
/// order, is explained, and what arrives was sent.
#[test]
fn reading_along_changes_nothing_and_everything_is_explained() {
    let known: BTreeSet<&str> = EVENT_NAMES.iter().map(|(word, _)| *word).collect();
    let mut words = BTreeSet::new();
    for seed in 0..8 {
        let hosts =
            if seed % 2 == 0 { ByzantineChoice::Drawn } else { ByzantineChoice::Many(Byzantine::Twin, 2) };
        let silent = StandardRun::with(pbft(), None, hosts, seed).unwrap().run();
        let (trace, told) = trace();
        let loud = StandardRun::with_trace(pbft(), None, hosts, seed, trace).unwrap().run();
        assert_eq!(silent, loud, "seed {seed}");
        let told = told.borrow();
        assert!(told.windows(2).all(|pair| pair[0].at <= pair[1].at), "seed {seed}: in the order of time");
        for event in told.iter() {
            assert!(known.contains(event.what), "seed {seed}: {event}");
            let is_arrival = ["gets", "hears"].contains(&event.what);
            assert!(!is_arrival || event.number.is_some(), "seed {seed}: {event} was never sent");
        }
        words.extend(told.iter().map(|event| event.what));
    }
    for word in ["sends", "gets", "refuses", "loses", "timer", "enters", "syncs", "begins", "ends", "crashes"]
    {
        assert!(words.contains(word), "{word}: {words:?}");
    }
    for word in ["starts", "behaves", "calls", "believes", "decides", "executes", "notes", "heals"] {
        assert!(words.contains(word), "{word}: {words:?}");
    }
}

/// On connections it is bytes that are late or wait; what they were arrives all the same, on the next one if need be.
#[test]
fn what_becomes_of_connections_is_said() {
    let (mut world, told) = world(|settings| settings.transport = Transport::Links);
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
    let told = told.borrow();
    for (word, reason) in
        [("resends", "loss"), ("stalls", "cut"), ("breaks", ""), ("dials", ""), ("link", "back")]
    {
        let found = told.iter().find(|event| event.what == word && event.details.text.contains(reason));
        assert!(found.is_some(), "{word} {reason}");
    }
    // Links lose nothing without saying so: what was voted while nothing passed was read in the end.
    let gap = told.iter().any(|event| event.what == "link" && event.details.text.contains("gap"));
    let votes = told.iter().filter(|event| event.what == "sends" && event.details.kind == COMMIT.as_str());
    for vote in votes.filter(|vote| vote.at.plus(secs(5)) < now && !gap) {
        for to in &vote.details.to {
            let is_it =
                |event: &&Event| event.what == "gets" && event.number == vote.number && event.who == *to;
            assert!(told.iter().any(|event| is_it(&event)), "{vote} never reached {to}");
        }
    }
}

/// Of what does not simply arrive it is said what became of it, and why.
#[test]
fn what_becomes_of_a_message_is_said() {
    let (mut world, told) = world(|_| {});
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
    let told = told.borrow();
    let number = told.iter().find(|event| event.what == "drops").and_then(|event| event.number);
    let sending = told.iter().find(|event| event.what == "sends" && event.number == number).unwrap();
    assert_eq!(sending.details.kind, "prepare");
    for word in ["drops", "delays", "holds", "alters", "releases"] {
        let count = told.iter().filter(|event| event.what == word).count();
        assert_eq!(count, 1, "{word}");
    }
    let altered = told.iter().find(|event| event.what == "alters").unwrap();
    let got = told.iter().find(|event| event.what == "gets" && event.number == altered.number);
    assert_eq!(
        got.map(|event| event.details.kind.as_str()),
        Some("unknown"),
        "what arrives is what was made of it"
    );
    let refused =
        told.iter().find(|event| event.what == "refuses" && event.details.kind == "unknown").unwrap();
    assert_eq!(
        (refused.details.from, refused.details.text.as_str()),
        (altered.details.from, "malformed message")
    );
    let lost =
        told.iter().find(|event| event.what == "loses" && event.details.kind == COMMIT.as_str()).unwrap();
    assert!(lost.to_string().contains("loss"), "{lost}");
    let begins = told.iter().find(|event| event.what == "begins").unwrap();
    assert!(begins.to_string().ends_with("r3 <-> all, 100.0 %"), "{begins}");
    let ends = told.iter().find(|event| event.what == "ends").unwrap();
    assert_eq!((ends.number, &ends.details.text), (begins.number, &begins.details.text));
}

/// A choice leaves what was asked for.
#[test]
fn a_choice_leaves_what_was_asked_for() {
    let (trace, told) = trace();
    let _ = StandardRun::with_trace(pbft(), None, ByzantineChoice::Drawn, 3, trace).unwrap().run();
    let told = told.borrow();
    let chosen = |terms: &str| -> Vec<&Event> {
        let pick: Pick = terms.parse().unwrap();
        told.iter().filter(|event| pick.takes(event)).collect()
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
