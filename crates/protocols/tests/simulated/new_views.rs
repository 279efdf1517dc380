//! The begin of a view: the choice between two prepared blocks, invalid NEW-VIEWs, and replicas in different views.
//! Scenarios 7, 8 and 22 of PBFT, for both variants.

use crate::support::{
    TRANSPORTS, VIEW_CHANGE_NS, begin, both, drop_frames, go, incr, level, message, r, recovery, refused,
    settle, settle_honest, view, wait_for, world_of,
};
use quorate_consensus::{Certificate, CheckpointProof, Entry, Signed, To};
use quorate_protocols::pbft::{
    COMMIT, Certified, ENTRY, NEW_VIEW, NewView, PRE_PREPARE, PREPARE, PbftMessage, SUSPECT, VIEW_CHANGE,
    ViewChange,
};
use quorate_sim::{ControlledInput, Frame, Settings, Verdict, World, ms, secs};
use quorate_types::{BlockId, Digest, Height, Kind, ReplicaId, Signature, Statement, View, Wire as _};
use std::cell::RefCell;
use std::rc::Rc;

both! {
    s07_newer_of_two_prepared_blocks_is_chosen
    s08_new_view_that_does_not_follow_is_refused
    s08_new_view_of_a_replica_that_does_not_lead_is_refused
    s08_replicas_meet_after_a_new_view_that_is_valid_only_for_some
    s22_one_replica_two_views_ahead
}

/// The NEW-VIEW that a frame carries.
fn read_new_view(body: &[u8]) -> NewView {
    let (bytes, _) = body.split_last_chunk::<64>().unwrap();
    match PbftMessage::from_bytes(bytes) {
        Ok(PbftMessage::NewView(new)) => *new,
        other => panic!("no NEW-VIEW: {other:?}"),
    }
}

/// Observations of scenario 7 at its height; everything below is decided.
#[derive(Default)]
struct Seen {
    height: Height,
    /// The block that replica 0 prepared in view 1, and that of replica 2 in view 3, as their COMMITs name them.
    prepared: [Option<(Height, Digest)>; 2],
    /// Whether replicas ask for view 4.
    is_asked: bool,
    new: Option<NewView>,
    committed: Vec<(Height, Digest)>,
}

/// Replica 0 alone prepares in view 1, and receives no further message until view 4. Of the others, replica 2 alone
/// prepares, in view 3. No COMMIT arrives. Replicas 0, 2 and 3 make the view change to view 4.
fn two_prepared(seen: &mut Seen, frame: &Frame) -> Verdict {
    let (kind, view) = (frame.content.kind, frame.content.view);
    let subject = (frame.content.height, frame.content.subject());
    let is_away = seen.prepared[0].is_some() && !seen.is_asked;
    seen.is_asked |= kind == VIEW_CHANGE && view == View(4);
    if kind == COMMIT && frame.content.height == seen.height {
        match (frame.from, view) {
            (ReplicaId(0), View(1)) => seen.prepared[0] = Some(subject),
            (ReplicaId(2), View(3)) => seen.prepared[1] = Some(subject),
            (_, View(4)) => seen.committed.push(subject),
            _ => panic!("{} prepares in view {view}", frame.from),
        }
    }
    if kind == NEW_VIEW && view == View(4) {
        seen.new.get_or_insert_with(|| read_new_view(&frame.body));
    }
    let is_lost = match kind {
        PRE_PREPARE => [View(0), View(2)].contains(&view),
        PREPARE => (view == View(1) && frame.to != r(0)) || (view == View(3) && frame.to != r(2)),
        COMMIT => view < View(4),
        VIEW_CHANGE => view == View(4) && frame.from == r(1),
        _ => false,
    };
    let touches = frame.from == r(0) || frame.to == r(0);
    if is_lost || (is_away && touches && !seen.is_asked) { Verdict::Drop } else { Verdict::Pass }
}

/// Scenario 7: two blocks have prepared at one height, in views 1 and 3. The next view chooses that of view 3, although
/// it receives the other one first and from as many replicas.
fn s07_newer_of_two_prepared_blocks_is_chosen(entry: &Entry) {
    for (seed, transport) in TRANSPORTS.into_iter().enumerate() {
        let mut world = world_of(entry, 400 + seed as u64, |settings| settings.transport = transport);
        begin(&mut world);
        settle(&mut world);
        let height = world.height().next();
        let seen = Rc::new(RefCell::new(Seen { height, ..Seen::default() }));
        let watch = Rc::clone(&seen);
        world.hook(move |_, frame| two_prepared(&mut watch.borrow_mut(), frame));
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        wait_for(&mut world, &ids, secs(20));
        let seen = seen.borrow();
        let [Some(older), Some(newer)] = seen.prepared else { panic!("prepared: {:?}", seen.prepared) };
        assert_eq!((older.0, newer.0), (height, height));
        assert_ne!(older.1, newer.1, "two blocks");
        let new = seen.new.as_ref().unwrap();
        let mut claims: Vec<(ReplicaId, View, Digest)> = Vec::new();
        for change in &new.changes {
            let here = change.body.prepared.iter().filter(|entry| entry.height == height);
            claims.extend(here.map(|entry| (change.by, entry.view, entry.block.0)));
        }
        assert_eq!(claims, [(r(0), View(1), older.1), (r(2), View(3), newer.1)]);
        assert_eq!(new.picks.last(), Some(&(height, BlockId(newer.1))), "the block of view 3");
        assert!(seen.committed.contains(&newer) && !seen.committed.contains(&older));
        assert!(world.replicas().all(|id| view(&world, id) == View(4)));
        drop(seen);
        world.unhook();
        settle(&mut world);
    }
}

/// Returns an idle world in which no checkpoint is due soon, with a controlled replica that will lead view 1.
fn with_next_leader(entry: &Entry, seed: u64, change: impl FnOnce(&mut Settings)) -> World {
    let mut world = world_of(entry, seed, |settings| {
        settings.checkpoint_every = 64;
        settings.window = 128;
        change(settings);
    });
    begin(&mut world);
    level(&mut world);
    world.take_control(r(1));
    world
}

/// Runs until this number of view changes for view 1 have reached the controlled replica. Returns them by sender.
fn collect_changes(world: &mut World, controlled: ReplicaId, count: usize) -> Vec<Signed<ViewChange>> {
    let mut changes: Vec<Signed<ViewChange>> = Vec::new();
    for _ in 0..2_000 {
        go(world.run_for(ms(1)), world);
        for heard in world.received(controlled) {
            let ControlledInput::Frame { from, body, content, .. } = heard else { continue };
            let is_known = changes.iter().any(|change| change.by == from);
            if content.kind != VIEW_CHANGE || content.view != View(1) || is_known {
                continue;
            }
            let (message, signature) = body.split_last_chunk::<64>().unwrap();
            let Ok(PbftMessage::ViewChange(change)) = PbftMessage::from_bytes(message) else {
                panic!("a message of that kind is no VIEW-CHANGE")
            };
            changes.push(Signed { body: *change, by: from, signature: Signature(*signature) });
        }
        if changes.len() >= count {
            changes.sort_by_key(|change| change.by);
            return changes;
        }
    }
    panic!("only {} view changes have arrived", changes.len());
}

fn signed(world: &World, by: ReplicaId, body: ViewChange) -> Signed<ViewChange> {
    let signature = world.sign(by, &body.statement());
    Signed { body, by, signature }
}

/// The fault of a NEW-VIEW.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// X has one block more.
    More,
    /// X lacks a prepared block.
    Nothing,
    /// X has an empty block at a height at which a block has prepared.
    Null,
    /// X names another block at a height at which one has prepared.
    Other,
    /// It has only Q - 1 view changes.
    TooFew,
    /// One sender occurs twice.
    Twice,
    /// One view change is for another view.
    OtherView,
    /// One view change is in the name of another replica.
    Forged,
    /// The leader's own view change shows less than its form requires, or more.
    Unshown,
}

impl Wrong {
    const ALL: [Self; 9] = [
        Self::More,
        Self::Nothing,
        Self::Null,
        Self::Other,
        Self::TooFew,
        Self::Twice,
        Self::OtherView,
        Self::Forged,
        Self::Unshown,
    ];

    /// Returns the reason of a replica that refuses it. The check of the NEW-VIEW itself gives all reasons but two.
    fn reason(self, entry: &Entry) -> &'static str {
        match self {
            Self::More | Self::Nothing | Self::Null | Self::Other => "another selection",
            Self::TooFew => "too few view changes",
            Self::OtherView => "view change for another view",
            Self::Unshown if entry.spec.votes_are_signed => "certificate of something else",
            Self::Unshown => "certificates where votes are not signed",
            Self::Twice => "malformed message",
            Self::Forged => "bad signature",
        }
    }
}

/// Returns a NEW-VIEW of the controlled replica with one fault. The right X is `picks`.
fn wrong_new_view(
    entry: &Entry,
    world: &World,
    wrong: Wrong,
    mut changes: Vec<Signed<ViewChange>>,
    mut picks: Picks,
) -> NewView {
    let (height, block) = *picks.last().unwrap();
    let invented = BlockId(Digest([7; 32]));
    match wrong {
        Wrong::More => picks.push((height.next(), invented)),
        Wrong::Nothing => drop(picks.pop()),
        Wrong::Null => *picks.last_mut().unwrap() = (height, BlockId::null(height)),
        Wrong::Other => *picks.last_mut().unwrap() = (height, invented),
        Wrong::TooFew => changes.truncate(2),
        Wrong::Twice => changes[1] = changes[0].clone(),
        Wrong::OtherView => {
            let body = ViewChange { view: View(5), ..changes[0].body.clone() };
            changes.push(signed(world, r(1), body));
        }
        Wrong::Forged => {
            // It is in the name of another replica, under the controlled replica's own key.
            let body = ViewChange { prepared: Vec::new(), certified: Vec::new(), ..changes[2].body.clone() };
            changes[2] = Signed { by: changes[2].by, ..signed(world, r(1), body) };
        }
        Wrong::Unshown => {
            let mut body = changes[0].body.clone();
            if entry.spec.votes_are_signed {
                // It names another block than the certificate does.
                body.prepared.last_mut().unwrap().block = invented;
            } else {
                body.certified.push(certificate(world, height, block));
            }
            changes.push(signed(world, r(1), body));
        }
    }
    changes.sort_by_key(|change| change.by);
    NewView { view: View(1), changes, picks }
}

/// Returns the proof that a block has prepared in view 0.
fn certificate(world: &World, height: Height, block: BlockId) -> Certified {
    let of = |kind: Kind, by: &[u16]| {
        let statement = Statement::new(kind, View(0), height, block.0);
        let signed: Vec<_> = by.iter().map(|id| (r(*id), world.sign(r(*id), &statement))).collect();
        Certificate::of(statement, &signed)
    };
    Certified { proposal: of(PRE_PREPARE, &[0]), prepares: of(PREPARE, &[2, 3]) }
}

/// The blocks that a NEW-VIEW selects by height: its X.
type Picks = Vec<(Height, BlockId)>;

/// Whether a frame could still decide a block in view 0.
fn is_old_commit(frame: &Frame) -> bool {
    frame.content.kind == COMMIT && frame.content.view == View(0)
}

/// A block has prepared at all replicas and is decided at none, and all leave for view 1. Returns the view changes that
/// reach a controlled replica, and their selection. The COMMITs of view 0 stay lost.
fn leave_with_a_prepared_block(
    world: &mut World,
    controlled: ReplicaId,
    count: usize,
) -> (Vec<Signed<ViewChange>>, Picks) {
    let before = world.height();
    drop_frames(world, |frame| is_old_commit(frame) || frame.content.kind == NEW_VIEW);
    let changes = collect_changes(world, controlled, count);
    let entries = &changes[0].body.prepared;
    assert!(changes.iter().all(|change| change.body.prepared == *entries), "all of them have prepared it");
    assert_eq!(entries.last().unwrap().height, before.next(), "its height is not decided");
    assert_eq!(world.height(), before);
    let picks = entries.iter().map(|entry| (entry.height, entry.block)).collect();
    drop_frames(world, is_old_commit);
    (changes, picks)
}

/// Scenario 8: the leader of the next view sends a NEW-VIEW that does not follow from its view changes. It is refused,
/// and the view after it begins with the prepared block.
fn s08_new_view_that_does_not_follow_is_refused(entry: &Entry) {
    for (seed, wrong) in Wrong::ALL.into_iter().enumerate() {
        let mut world = with_next_leader(entry, 410 + seed as u64, |_| {});
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        let (changes, picks) = leave_with_a_prepared_block(&mut world, r(1), 3);
        let new = wrong_new_view(entry, &world, wrong, changes, picks);
        let reason = wrong.reason(entry);
        assert_eq!(refused(&world, reason), 0);
        world.send_as(r(1), To::All, &*message(entry, PbftMessage::NewView(Box::new(new))));
        // Two replicas that refuse it make the third one join them. The third one may receive it when it is stale.
        go(world.run_for(ms(20)), &world);
        assert!(refused(&world, reason) >= 2, "{wrong:?}: {:?}", world.rejected());
        assert!(refused(&world, reason) + refused(&world, "stale") >= 3, "{wrong:?}: {:?}", world.rejected());
        wait_for(&mut world, &ids, 2 * VIEW_CHANGE_NS);
        assert_eq!(view(&world, r(3)), View(2), "{wrong:?}");
        world.unhook();
        settle_honest(&mut world);
    }
}

/// Scenario 8: a replica that does not lead the view sends a NEW-VIEW that is valid otherwise. No replica enters. The
/// NEW-VIEW of the leader counts.
fn s08_new_view_of_a_replica_that_does_not_lead_is_refused(entry: &Entry) {
    let mut world = world_of(entry, 420, |_| {});
    begin(&mut world);
    settle(&mut world);
    world.take_control(r(3));
    let ids = world.submit(0, &[incr("n"), incr("n")]);
    let (changes, picks) = leave_with_a_prepared_block(&mut world, r(3), 3);
    let new = NewView { view: View(1), changes, picks };
    // The leader's own NEW-VIEW was lost, and is still on its way when another one arrives.
    world.hook(|_, frame| {
        let is_new_view = frame.content.kind == NEW_VIEW && frame.from == r(1);
        match () {
            () if is_old_commit(frame) => Verdict::Drop,
            () if is_new_view => Verdict::Delay(ms(50)),
            () => Verdict::Pass,
        }
    });
    world.send_as(r(3), To::All, &*message(entry, PbftMessage::NewView(Box::new(new))));
    go(world.run_for(ms(20)), &world);
    assert!(refused(&world, "wrong_sender") >= 2, "{:?}", world.rejected());
    let has_begun = |id: u16| world.status(r(id)).unwrap().normal;
    assert!(!has_begun(0) && !has_begun(2), "no replica enters");
    wait_for(&mut world, &ids, VIEW_CHANGE_NS);
    assert_eq!(view(&world, r(2)), View(1), "the NEW-VIEW of the leader counts");
    world.unhook();
    settle_honest(&mut world);
}

/// Scenario 8 with seven replicas: the next leader sends a valid NEW-VIEW to some, an invalid one to the others, and no
/// further message. Replicas that have entered find no quorum. All meet in the view after it, with the prepared block.
fn s08_replicas_meet_after_a_new_view_that_is_valid_only_for_some(entry: &Entry) {
    for (seed, kept) in [1, 2, 4].into_iter().enumerate() {
        let mut world =
            with_next_leader(entry, 425 + seed as u64, |settings| *settings = settings.clone().with_n(7));
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        let (changes, picks) = leave_with_a_prepared_block(&mut world, r(1), 5);
        world.crash(r(0), quorate_sim::Survives::Everything);
        let right = NewView { view: View(1), changes: changes.clone(), picks: picks.clone() };
        let wrong = wrong_new_view(entry, &world, Wrong::Null, changes, picks);
        let say = |world: &mut World, to: std::ops::Range<u16>, new: NewView| {
            let to = To::Some(to.map(r).collect());
            world.send_as(r(1), to, &*message(entry, PbftMessage::NewView(Box::new(new))));
        };
        say(&mut world, 2..2 + kept, right);
        say(&mut world, 2 + kept..7, wrong);
        let entered = |world: &World| {
            let at = |id| world.status(r(id)).unwrap();
            (2..2 + kept).all(|id| at(id).view > View(1) || at(id).normal)
        };
        go(world.run_while("some have entered", ms(50), |world| !entered(world)), &world);
        go(world.run_for(ms(20)), &world);
        assert!(refused(&world, "another selection") >= 1, "{:?}", world.rejected());
        let bound = recovery(&world, 0);
        wait_for(&mut world, &ids, bound);
        assert!((2..7).all(|id| view(&world, r(id)) >= View(2)), "{kept}");
        world.unhook();
        world.start(r(0)).unwrap();
        settle_honest(&mut world);
    }
}

/// Scenario 22 with seven replicas: two replicas help one into view 2 and are silent from then on. Of the other four,
/// two wait for view 1 and two know of no view change. The five that are left are a quorum, but the view changes of no
/// view are complete. The view change of the replica ahead has to count for lower views, or the four wait for ever.
fn s22_one_replica_two_views_ahead(entry: &Entry) {
    // An ENTRY of the replica ahead shows the others the missing view changes. Without it the replica's own view change
    // has to suffice.
    for (seed, transport, shows) in [
        (430, TRANSPORTS[0], true),
        (431, TRANSPORTS[1], true),
        (432, TRANSPORTS[0], false),
        (433, TRANSPORTS[1], false),
    ] {
        let mut world = world_of(entry, seed, |settings| {
            *settings = settings.clone().with_n(7);
            settings.transport = transport;
        });
        begin(&mut world);
        level(&mut world);
        for id in [5, 6] {
            world.take_control(r(id));
        }
        // The leader's proposal is lost. Only replica 4 receives the messages of replicas that leave.
        drop_frames(&mut world, |frame| match frame.content.kind {
            PRE_PREPARE => true,
            VIEW_CHANGE | NEW_VIEW => frame.to != r(4),
            SUSPECT => frame.to <= r(1),
            _ => false,
        });
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        for id in [5, 6] {
            let to = To::Some([2, 3, 4].map(r).into_iter().collect());
            world.send_as(r(id), to, &*message(entry, PbftMessage::Suspect { view: View(0), on: true }));
            let change = ViewChange {
                view: View(1),
                proof: CheckpointProof::genesis(),
                prepared: Vec::new(),
                pre_prepared: Vec::new(),
                certified: Vec::new(),
            };
            let change = PbftMessage::ViewChange(Box::new(change));
            world.send_as(r(id), To::One(r(4)), &*message(entry, change));
        }
        let behind = |world: &World| view(world, r(4)) < View(2);
        go(world.run_while("one is two views ahead", secs(5), behind), &world);
        let views = [0, 1, 2, 3, 4].map(|id| view(&world, r(id)).0);
        assert_eq!(views, [0, 0, 1, 1, 2]);
        assert!([2, 3, 4].iter().all(|id| !world.status(r(*id)).unwrap().normal));
        drop_frames(&mut world, move |frame| !shows && frame.content.kind == ENTRY);
        let healed = world.now();
        let bound = recovery(&world, secs(1));
        let apart = |world: &World| {
            let at = |id| world.status(r(id)).unwrap();
            (0..5).any(|id| !at(id).normal || at(id).view != at(0).view || at(id).view < View(2))
        };
        go(world.run_while("all are in one view", bound, apart), &world);
        let left = bound - world.now().since(healed);
        wait_for(&mut world, &ids, left);
        settle_honest(&mut world);
    }
}
