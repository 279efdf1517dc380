use super::*;
use quorate_consensus::{Checkpoint, Place};
use quorate_types::{DecodeError, Kind, Reader, View};

const VOTE: Kind = Kind::new("vote");

#[derive(Clone, Debug)]
struct Vote {
    view: u64,
    height: u64,
    subject: u8,
    once: bool,
}

impl Vote {
    fn statement(&self) -> Statement {
        Statement::new(VOTE, View(self.view), Height(self.height), Digest([self.subject; 32]))
    }
}

impl Message for Vote {
    fn kind(&self) -> Kind {
        VOTE
    }
    fn place(&self) -> Place {
        Place { view: View(self.view), height: Height(self.height), certified: false }
    }
    fn auth(&self) -> Auth {
        Auth::Linked(Some(self.statement()))
    }
    fn once(&self) -> bool {
        self.once
    }
}

impl Wire for Vote {
    fn encode(&self, out: &mut Vec<u8>) {
        self.statement().encode(out);
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::Truncated)
    }
}

fn vote(height: u64, subject: u8) -> Box<dyn Message> {
    Box::new(Vote { view: 0, height, subject, once: true })
}

#[derive(Default)]
struct Rig {
    outbox: Outbox,
    out: VecDeque<Output>,
}

impl Rig {
    fn send(&mut self, message: Box<dyn Message>) -> Result<(), Unsent> {
        self.outbox.begin_step();
        self.outbox.send(Time(0), To::All, Hold::UntilDurable, message, &mut self.out)
    }

    /// Takes the outputs as short names.
    fn drain(&mut self) -> Vec<String> {
        let name = |output: Output| match output {
            Output::Persist { mark, entry } => match entry {
                LogEntry::Guard(statement) => format!("guard {} @{}", statement.height, mark.0),
                LogEntry::Record(_) => format!("record @{}", mark.0),
                LogEntry::Floors(_) => format!("floors @{}", mark.0),
                other => format!("{other:?} @{}", mark.0),
            },
            Output::Sync(mark) => format!("sync {}", mark.0),
            Output::Send { frame: Unsealed::Protocol { body, own, .. }, .. } => {
                let statement = Statement::from_bytes(&body).unwrap();
                assert!(own.is_some(), "a message with a statement comes back");
                format!("send {}", statement.height)
            }
            Output::Send { .. } => "send host".to_owned(),
            other => format!("{other:?}"),
        };
        self.out.drain(..).map(name).collect()
    }
}

fn key(kind: u8, height: u64) -> RecordKey {
    RecordKey { kind, height: Height(height), scope: Digest::ZERO }
}

/// §4.4 "persist before send": record and guard entry share a mark, and the message leaves after it.
#[test]
fn promise_leaves_when_its_mark_is_durable() {
    let mut rig = Rig::default();
    rig.outbox.begin_step();
    rig.outbox.record(key(1, 5), vec![1], &mut rig.out);
    rig.outbox.send(Time(0), To::All, Hold::UntilDurable, vote(5, 1), &mut rig.out).unwrap();
    assert_eq!(rig.drain(), ["record @1", "guard 5 @1", "sync 1"]);
    rig.outbox.durable(Mark(0), &mut rig.out);
    assert!(rig.drain().is_empty());
    rig.outbox.durable(Mark(1), &mut rig.out);
    assert_eq!(rig.drain(), ["send 5"]);
}

#[test]
fn one_sync_releases_many_messages_in_order() {
    let mut rig = Rig::default();
    for height in 1..=3 {
        rig.send(vote(height, 1)).unwrap();
    }
    assert_eq!(rig.drain(), ["guard 1 @1", "sync 1", "guard 2 @2", "sync 2", "guard 3 @3", "sync 3"]);
    rig.outbox.durable(Mark(2), &mut rig.out);
    assert_eq!(rig.drain(), ["send 1", "send 2"]);
    // A repetition promises nothing new, but does not overtake messages that still wait.
    rig.send(vote(1, 1)).unwrap();
    assert!(rig.drain().is_empty());
    rig.outbox.durable(Mark(3), &mut rig.out);
    assert_eq!(rig.drain(), ["send 3", "send 1"]);
}

#[test]
fn unheld_messages_overtake_held_ones() {
    let mut rig = Rig::default();
    rig.send(vote(1, 1)).unwrap();
    rig.drain();
    let free = Box::new(Vote { view: 0, height: 9, subject: 1, once: false });
    rig.outbox.send(Time(0), To::All, Hold::No, free, &mut rig.out).unwrap();
    assert_eq!(rig.drain(), ["send 9"]);
}

#[test]
#[should_panic(expected = "must be held")]
fn message_that_may_be_sent_once_is_always_held() {
    let mut rig = Rig::default();
    let _ = rig.outbox.send(Time(0), To::All, Hold::No, vote(1, 1), &mut rig.out);
}

/// A slot never has two statements, and may repeat the identical one.
#[test]
fn guard_refuses_a_second_subject() {
    let mut rig = Rig::default();
    rig.send(vote(1, 1)).unwrap();
    let slot = Vote { view: 0, height: 1, subject: 1, once: true }.statement().slot();
    assert_eq!(rig.send(vote(1, 2)), Err(Unsent::Contradiction(slot, Digest([1; 32]))));
    assert_eq!(rig.send(vote(1, 1)), Ok(()));
    assert_eq!(rig.drain().iter().filter(|line| line.starts_with("guard")).count(), 1);
    // A message that may be sent again is not guarded.
    for subject in 1..3 {
        rig.send(Box::new(Vote { view: 0, height: 7, subject, once: false })).unwrap();
    }
}

#[test]
fn guard_survives_a_restart() {
    let statement = Vote { view: 0, height: 1, subject: 1, once: true }.statement();
    let guard = BTreeMap::from([(statement.slot(), statement.subject)]);
    let mut rig =
        Rig { outbox: Outbox::restore(guard, Floors::default(), BTreeMap::new()), out: VecDeque::new() };
    assert!(matches!(rig.send(vote(1, 2)), Err(Unsent::Contradiction(..))));
    assert_eq!(rig.send(vote(1, 1)), Ok(()));
    assert_eq!(rig.drain(), ["send 1"], "everything in the log is durable");
}

#[test]
fn slots_below_the_floors_stay_dead() {
    let mut rig = Rig::default();
    for height in [3, 4] {
        rig.send(vote(height, 1)).unwrap();
    }
    let floors = Floors { height: Height(4), views: vec![(VOTE, View(0))] };
    rig.outbox.raise_floors(floors, &mut rig.out);
    assert_eq!(rig.outbox.size().guard_entries, 1, "dead entries go");
    assert!(matches!(rig.send(vote(3, 2)), Err(Unsent::Dead(_))));
    assert!(
        matches!(rig.send(vote(3, 1)), Err(Unsent::Dead(_))),
        "also for a statement that was made before"
    );
    assert!(matches!(rig.send(vote(4, 2)), Err(Unsent::Contradiction(..))));
    rig.outbox.raise_floors(Floors { height: Height(2), views: vec![(VOTE, View(1))] }, &mut rig.out);
    assert!(matches!(rig.send(vote(3, 1)), Err(Unsent::Dead(_))), "floors never sink");
    assert!(matches!(rig.send(vote(9, 1)), Err(Unsent::Dead(_))), "view 0 lies below the floor of its kind");
    let later = Box::new(Vote { view: 1, height: 9, subject: 1, once: true });
    assert_eq!(rig.send(later), Ok(()));
}

/// A message in a reserved slot leaves without a sync of its own, and is never sent after a restart.
#[test]
fn reserved_message_waits_for_its_reservation_alone() {
    let propose = |view| Box::new(Vote { view, height: view, subject: 1, once: true });
    let mut rig = Rig::default();
    rig.outbox.begin_step();
    rig.outbox.reserve(VOTE, View(3), &mut rig.out);
    assert_eq!(rig.drain(), ["floors @1"]);
    rig.outbox.begin_step();
    rig.outbox.record(key(1, 0), vec![1], &mut rig.out);
    rig.outbox.send(Time(0), To::All, Hold::Reserved, propose(3), &mut rig.out).unwrap();
    assert_eq!(rig.drain(), ["record @2", "sync 1"], "no entry of its own, and not the record's mark");
    rig.send(vote(9, 1)).unwrap();
    rig.outbox.durable(Mark(1), &mut rig.out);
    assert_eq!(rig.drain(), ["guard 9 @3", "sync 3", "send 3"], "before a message with a later mark");
    rig.outbox.begin_step();
    rig.outbox.send(Time(0), To::All, Hold::Reserved, propose(2), &mut rig.out).unwrap();
    assert_eq!(rig.drain(), ["send 2"], "at once");
    let other = Box::new(Vote { view: 2, height: 2, subject: 2, once: true });
    let said = rig.outbox.send(Time(0), To::All, Hold::Reserved, other, &mut rig.out);
    assert!(matches!(said, Err(Unsent::Contradiction(..))), "still once");
    rig.outbox.send(Time(0), To::All, Hold::Reserved, propose(4), &mut rig.out).unwrap();
    assert_eq!(rig.drain(), ["guard 4 @4", "sync 4"], "not reserved: as any promise");
    rig.outbox.write_base(&mut rig.out);
    let floors = rig.out.iter().find_map(|output| match output {
        Output::Persist { entry: LogEntry::Floors(floors), .. } => Some(floors.clone()),
        _ => None,
    });
    let outbox = Outbox::restore(BTreeMap::new(), floors.unwrap(), BTreeMap::new());
    let mut rig = Rig { outbox, out: VecDeque::new() };
    assert!(matches!(rig.send(propose(3)), Err(Unsent::Dead(_))), "whatever statement was made there");
    assert_eq!(rig.send(propose(4)), Ok(()));
}

#[test]
fn base_has_everything_that_binds() {
    let mut rig = Rig::default();
    rig.outbox.record(key(1, 5), vec![1], &mut rig.out);
    rig.outbox.record(key(1, 5), vec![2], &mut rig.out);
    rig.outbox.record(key(2, 0), vec![3], &mut rig.out);
    rig.outbox.record(key(1, 9), vec![4], &mut rig.out);
    rig.send(vote(9, 1)).unwrap();
    rig.outbox.forget_records(Height(5));
    rig.drain();
    rig.outbox.begin_step();
    rig.outbox.write_base(&mut rig.out);
    let mut records = Vec::new();
    let mut guards = 0;
    for output in rig.out.drain(..) {
        match output {
            Output::Persist { entry: LogEntry::Record(bytes), .. } => {
                let (key, bytes) = decode_record(&bytes).unwrap();
                records.push((key.kind, key.height.0, bytes));
            }
            Output::Persist { entry: LogEntry::Guard(_), .. } => guards += 1,
            _ => {}
        }
    }
    assert_eq!(records, [(1, 9, vec![4]), (2, 0, vec![3])]);
    assert_eq!(guards, 1);
}

#[test]
fn repeated_record_is_written_once() {
    let mut rig = Rig::default();
    rig.outbox.record(key(1, 5), vec![1], &mut rig.out);
    rig.outbox.record(key(1, 5), vec![1], &mut rig.out);
    assert_eq!(rig.drain().len(), 1);
}

/// A replica reports the age of the oldest held message that a replica waits for.
#[test]
fn age_of_the_oldest_held_message_is_reported() {
    let mut rig = Rig::default();
    assert_eq!(rig.outbox.oldest_held_ns(Time(100)), 0);
    rig.outbox.begin_step();
    let checkpoint = HostMessage::Checkpoint(Checkpoint { height: Height(128), ..Checkpoint::GENESIS });
    rig.outbox.send_host(Time(10), To::All, checkpoint, &mut rig.out).unwrap();
    assert_eq!(rig.outbox.oldest_held_ns(Time(100)), 0, "no replica waits for a checkpoint");
    for (now, height) in [(20, 1), (30, 2)] {
        rig.outbox.begin_step();
        rig.outbox.send(Time(now), To::All, Hold::UntilDurable, vote(height, 1), &mut rig.out).unwrap();
    }
    assert_eq!(rig.outbox.oldest_held_ns(Time(100)), 80);
    rig.outbox.durable(Mark(2), &mut rig.out);
    assert_eq!(rig.outbox.oldest_held_ns(Time(100)), 70, "the first has left");
    rig.outbox.durable(Mark(3), &mut rig.out);
    assert_eq!(rig.outbox.oldest_held_ns(Time(100)), 0);
    // A message in a reserved slot stands before older ones.
    rig.outbox.begin_step();
    rig.outbox.reserve(VOTE, View(0), &mut rig.out);
    rig.outbox.begin_step();
    let other = Box::new(Vote { view: 1, height: 3, subject: 1, once: true });
    rig.outbox.send(Time(200), To::All, Hold::UntilDurable, other, &mut rig.out).unwrap();
    rig.outbox.send(Time(210), To::All, Hold::Reserved, vote(4, 1), &mut rig.out).unwrap();
    assert_eq!(rig.outbox.held.front().map(|held| held.since), Some(Some(Time(210))));
    assert_eq!(rig.outbox.oldest_held_ns(Time(250)), 50);
}

/// A checkpoint leaves after the next sync. If there is none it asks for one of its own soon.
#[test]
fn checkpoint_waits_without_haste() {
    let mut rig = Rig::default();
    let checkpoint = Checkpoint { height: Height(128), ..Checkpoint::GENESIS };
    rig.outbox.begin_step();
    rig.outbox.send_host(Time(0), To::All, HostMessage::Checkpoint(checkpoint), &mut rig.out).unwrap();
    assert_eq!(rig.drain(), ["guard 128 @1"]);
    rig.outbox.tick(Time(1), &mut rig.out);
    assert!(rig.drain().is_empty());
    let until = rig.outbox.deadline().unwrap();
    rig.outbox.tick(until, &mut rig.out);
    assert_eq!(rig.drain(), ["sync 1"]);
    rig.outbox.durable(Mark(1), &mut rig.out);
    assert_eq!(rig.drain(), ["send host"]);
    let other = Checkpoint { view: View(3), ..checkpoint };
    assert_eq!(other.statement().kind, CHECKPOINT_KIND);
    let sent = rig.outbox.send_host(Time(0), To::All, HostMessage::Checkpoint(other), &mut rig.out);
    assert!(matches!(sent, Err(Unsent::Contradiction(..))), "one state for one height");
}

/// A replica that has come back may have signed checkpoints before it lost its disk. They are no sign of a roll-back.
#[test]
fn checkpoint_from_before_the_loss_of_a_disk_is_not_missing() {
    let mut rig = Rig::default();
    let checkpoint = Checkpoint { height: Height(128), ..Checkpoint::GENESIS }.statement();
    let vote = vote(1, 1).auth().statement().unwrap();
    assert!(rig.outbox.lacks(&checkpoint) && rig.outbox.lacks(&vote));
    rig.outbox.begin_step();
    rig.outbox.abstain(Floors::default(), &mut rig.out);
    assert!(!rig.outbox.lacks(&checkpoint));
    assert!(rig.outbox.lacks(&vote), "promises of the protocol are above the floors");
}

/// A step may have its mark on disk before it sends more, for example while the host executes.
#[test]
fn checkpoint_has_a_mark_of_its_own() {
    let mut rig = Rig::default();
    rig.send(vote(1, 1)).unwrap();
    rig.outbox.durable(Mark(1), &mut rig.out);
    rig.drain();
    let checkpoint = Checkpoint { height: Height(128), ..Checkpoint::GENESIS };
    rig.outbox.send_host(Time(0), To::All, HostMessage::Checkpoint(checkpoint), &mut rig.out).unwrap();
    assert_eq!(rig.drain(), ["guard 128 @2"]);
    rig.outbox.durable(Mark(2), &mut rig.out);
    assert_eq!(rig.drain(), ["send host"]);
}

#[test]
fn own_copy_returns_once() {
    let mut rig = Rig::default();
    rig.send(vote(1, 1)).unwrap();
    rig.outbox.durable(Mark(1), &mut rig.out);
    let ticket = rig.out.iter().find_map(|output| match output {
        Output::Send { frame: Unsealed::Protocol { own, .. }, .. } => *own,
        _ => None,
    });
    assert!(rig.outbox.own_copy(ticket.unwrap()).is_some());
    assert!(rig.outbox.own_copy(ticket.unwrap()).is_none());
}
