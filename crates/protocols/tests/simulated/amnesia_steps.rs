//! `pbft` §17, scenario 23, `hotstuff` §14, scenario 20, and `jolteon-hotstuff2` §14, scenario 15: a wiped and a rolled-back
//! disk, with and without one more crashed replica, and a power cut at each step of the way back.

use crate::amnesia::{is_back, load_until_back, names, with_each, world_with_spare};
use crate::return_flaws::NothingForgotten;
use crate::support::{SURVIVES, ask, begin, both, go, many, put, r, settle, short_window, world_of};
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_protocols::chained::{Chained, Jolteon};
use quorate_protocols::pbft::{Linked, Pbft};
use quorate_sim::{Oracle, ReplicaState, Survives, Verdict, World, ms, secs};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{Height, ReplicaId, Statement, View};
use std::cell::RefCell;
use std::rc::Rc;

both! {
    s23_wiped_replica_makes_no_statement_before_both_conditions_hold
    s23_rolled_back_replica_comes_back
    s23_power_cut_at_every_step_of_the_way_back
}

/// The replica that loses its disk, and the one that may be down meanwhile.
const LOST: ReplicaId = ReplicaId(1);
const DOWN: ReplicaId = ReplicaId(3);

/// Whether one more replica is down: then the answers of all others are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    Up,
    OneDown,
}

const OTHERS: [Others; 2] = [Others::Up, Others::OneDown];

fn world_with(entry: &Entry, seed: u64, others: Others) -> World {
    let mut world = world_with_spare(entry, seed);
    if others == Others::OneDown {
        world.crash(DOWN, Survives::Some);
        many(&mut world, 4);
    }
    world
}

/// Returns the statements of the replica from now on.
fn watch(world: &mut World) -> Rc<RefCell<Vec<Statement>>> {
    let statements: Rc<RefCell<Vec<Statement>>> = Rc::default();
    let made = Rc::clone(&statements);
    world.hook(move |_, frame| {
        if frame.from == LOST && frame.frame_type == PROTOCOL {
            made.borrow_mut().extend(frame.content.statement);
        }
        Verdict::Pass
    });
    statements
}

/// The replica takes part as before, and all are needed.
fn end(mut world: World, others: Others) {
    if others == Others::OneDown {
        world.start(DOWN).unwrap();
    }
    many(&mut world, 4);
    settle(&mut world);
    for id in [r(0), r(2)] {
        world.crash(id, Survives::Some);
    }
    ask(&mut world, 0, put("k", "last"));
}

/// The highest view and the highest stable height of the others at the loss of the disk: V and H are at least these.
#[derive(Clone, Copy, Debug)]
struct Shown {
    view: View,
    stable: Height,
    window: u64,
}

impl Shown {
    fn of(world: &World) -> Self {
        let sound = || world.replicas().filter(|id| *id != LOST).filter_map(|id| world.status(id));
        let view = sound().map(|status| status.view).max().unwrap();
        let stable = sound().map(|status| status.stable).max().unwrap();
        Self { view, stable, window: world.settings().window }
    }
}

/// Wipes the replica and lets it come back. Returns its first statement that `forbids`, and the world.
fn comes_back_after_a_wipe(
    entry: &Entry,
    others: Others,
    forbids: fn(&Statement, Shown) -> bool,
) -> (Option<Statement>, World) {
    let mut world = world_with(entry, 31, others);
    let shown = Shown::of(&world);
    world.wipe(LOST);
    let statements = watch(&mut world);
    world.start(LOST).unwrap();
    assert_eq!(world.status(LOST).unwrap().state, ReplicaState::Amnesiac);
    // Without clients the views of a chain move for this replica alone.
    let is_silent = |world: &World| !is_back(world, LOST);
    go(world.run_while("the replica is back", secs(120), is_silent), &world);
    many(&mut world, 20);
    world.unhook();
    let statements = statements.take();
    assert!(!statements.is_empty(), "{} {others:?}: it votes again", entry.spec.name);
    (statements.into_iter().find(|statement| forbids(statement, shown)), world)
}

/// `pbft` §20: silent in every view up to V + 1, and about every height until a checkpoint of H + 2L is stable.
fn is_too_early_in_pbft(statement: &Statement, shown: Shown) -> bool {
    let is_of_low_height =
        statement.height > Height::ZERO && statement.height <= shown.stable.plus(2 * shown.window);
    statement.view <= shown.view.next() || is_of_low_height
}

/// `hotstuff` §17: silent in every view up to the one after V.
fn is_too_early_in_a_chain(statement: &Statement, shown: Shown) -> bool {
    statement.view <= shown.view.next()
}

/// Returns the rule of a protocol, where a view and a height alone show a breach of it.
fn rule_of(entry: &Entry) -> fn(&Statement, Shown) -> bool {
    match entry.spec.name.as_str() {
        "pbft" | "pbft-signed" => is_too_early_in_pbft,
        "hotstuff" | "jolteon" | "hotstuff2" => is_too_early_in_a_chain,
        _ => |_, _| false,
    }
}

/// Scenario 23.
fn s23_wiped_replica_makes_no_statement_before_both_conditions_hold(entry: &Entry) {
    for others in OTHERS {
        let (early, world) = comes_back_after_a_wipe(entry, others, is_too_early_in_pbft);
        assert_eq!(early, None, "{} {others:?}", entry.spec.name);
        end(world, others);
    }
}

/// Scenario 20 of `hotstuff`, scenario 15 of `jolteon-hotstuff2`.
#[test]
fn wiped_replica_of_a_chain_makes_no_statement_in_views_that_it_may_have_known() {
    with_each(&["hotstuff", "jolteon", "hotstuff2"], |entry| {
        for others in OTHERS {
            let (early, world) = comes_back_after_a_wipe(entry, others, is_too_early_in_a_chain);
            assert_eq!(early, None, "{} {others:?}", entry.spec.name);
            end(world, others);
        }
    });
}

/// M19: without the bounds the same replica makes such statements.
#[test]
fn replica_that_abstains_from_nothing_makes_statements_too_early() {
    let early = |entry: &Entry, forbids| comes_back_after_a_wipe(entry, Others::Up, forbids).0;
    let pbft = Entry::of::<Flawed<Pbft<Linked>, NothingForgotten>>();
    assert!(early(&pbft, is_too_early_in_pbft).is_some());
    let jolteon = Entry::of::<Flawed<Chained<Jolteon>, NothingForgotten>>();
    assert!(early(&jolteon, is_too_early_in_a_chain).is_some());
}

/// Scenario 23: an old copy of the disk makes a replica forget promises, and it counts among the f: the others agree. With an
/// empty disk it comes back.
fn s23_rolled_back_replica_comes_back(entry: &Entry) {
    for others in OTHERS {
        rolled_back(entry, others);
    }
}

fn rolled_back(entry: &Entry, others: Others) {
    let mut world = world_of(entry, 32, |settings| {
        *settings = settings.clone().with_n(entry.smallest(2));
        short_window(settings);
    });
    begin(&mut world);
    let image = world.image(LOST).unwrap();
    many(&mut world, 20);
    if others == Others::OneDown {
        world.crash(DOWN, Survives::Some);
    }
    // Its own statements may conflict, and it reuses numbers on its links.
    for oracle in [Oracle::SameSlot, Oracle::Held, Oracle::Links, Oracle::Accusation, Oracle::Stopped] {
        world.tolerate(oracle);
    }
    world.crash(LOST, Survives::Everything);
    world.roll_back_disk(LOST, image);
    go(world.run_for(ms(50)), &world);
    // The replica may notice by itself that its disk is too old, at the start or when a peer shows its statements.
    let _ = world.start(LOST);
    many(&mut world, 12);
    world.wipe(LOST);
    go(world.run_for(ms(50)), &world);
    world.start(LOST).unwrap();
    load_until_back(&mut world, LOST, 120);
    end(world, others);
}

/// Returns the number of steps from the start on an empty disk until the replica is back.
fn steps_of(entry: &Entry, others: Others) -> u64 {
    let mut world = world_with(entry, 33, others);
    world.wipe(LOST);
    let before = world.steps(LOST);
    world.start(LOST).unwrap();
    load_until_back(&mut world, LOST, 120);
    world.steps(LOST) - before
}

fn cut_at(entry: &Entry, others: Others, step: u64, survives: Survives) {
    let mut world = world_with(entry, 33, others);
    let shown = Shown::of(&world);
    world.wipe(LOST);
    let statements = watch(&mut world);
    world.crash_at_step(LOST, step, survives);
    // The power may go while the replica is opened.
    let _ = world.start(LOST);
    for _ in 0..120 {
        if is_back(&world, LOST) || !world.is_running(LOST) {
            break;
        }
        many(&mut world, 4);
        go(world.run_for(ms(500)), &world);
    }
    world.disarm();
    let case = format!("{} {others:?}, step {step}, {survives:?}", entry.spec.name);
    if !world.is_running(LOST) {
        world.start(LOST).unwrap_or_else(|why| panic!("{case}: {why}"));
    }
    load_until_back(&mut world, LOST, 120);
    many(&mut world, 8);
    let early = statements.take().into_iter().find(|statement| rule_of(entry)(statement, shown));
    assert_eq!(early, None, "{case}: {shown:?}");
    if others == Others::OneDown {
        world.start(DOWN).unwrap();
    }
    settle(&mut world);
}

/// Cuts the power at some steps of the way back: at `count` of them, or at all.
fn cut_at_steps(entry: &Entry, others: Others, count: u64) {
    let steps = steps_of(entry, others);
    assert!(steps > 20, "{}: {steps} steps", entry.spec.name);
    let stride = usize::try_from((steps / count).max(1)).unwrap();
    for (step, survives) in (1..=steps).step_by(stride).zip(SURVIVES.iter().cycle()) {
        cut_at(entry, others, step, *survives);
    }
}

/// Scenario 23: every step of one variant while all answers are needed, and some of the rest, whose code below is the same.
fn s23_power_cut_at_every_step_of_the_way_back(entry: &Entry) {
    let count = if entry.spec.votes_are_signed { 15 } else { u64::MAX };
    cut_at_steps(entry, Others::OneDown, count);
    cut_at_steps(entry, Others::Up, 10);
}

/// The same for the other protocols, at some steps.
#[test]
fn power_cut_on_the_way_back_loses_nothing_under_every_protocol() {
    with_each(&names(), |entry| {
        cut_at_steps(entry, Others::Up, 3);
        cut_at_steps(entry, Others::OneDown, 4);
    });
}

/// The same for the other protocols.
#[test]
fn rolled_back_replica_comes_back_under_every_protocol() {
    with_each(&names(), |entry| rolled_back(entry, Others::OneDown));
}
