//! The museum of published failures. Each broken variant is caught, and `docs/museum.md` has the seeds of each. This
//! test makes the page (`UPDATE_EXPECT=1` writes it).

use crate::apollo_schedules::ROWS as APOLLO;
use crate::artemis_schedules::ROWS as ARTEMIS;
use crate::chained_museum::{NO_VARIANTS, ROWS, Row};
use crate::return_museum::{NO_VARIANTS as RETURNS_WITHOUT, ROWS as RETURNS};
use crate::support::{pbft, pbft_signed};
use crate::sync_museum::ROWS as SYNCHRONOUS;
use expect_test::expect_file;
use quorate_consensus::flawed::{Flaw, Flawed};
use quorate_consensus::{Entry, Protocol as _, Seal, Window};
use quorate_protocols::pbft::{AllSigned, Linked, Pbft, PbftMessage, SignedMessage};
use quorate_sim::exam::{ShortRun, replaceable};
use quorate_sim::museum::{EXHIBITS, Exhibit, ORACLE_MUTATIONS};
use quorate_sim::seed::{ByzantineChoice, StandardRun};
use quorate_sim::{BadSettings, Byzantine, Failure, Oracle, Plan, Report, Settings, Trace, World, ms, secs};
use quorate_types::{BlockId, Height, ReplicaId, View};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// M10: PREPAREs of two views count together.
#[derive(Default)]
struct VotesOfTwoViews(BTreeMap<(View, Height, ReplicaId), BlockId>);

impl Flaw<Pbft<AllSigned>> for VotesOfTwoViews {
    fn hears(
        &mut self,
        protocol: &Pbft<AllSigned>,
        message: SignedMessage,
        seal: &Seal,
    ) -> Vec<SignedMessage> {
        let view = protocol.status().view;
        let PbftMessage::Prepare(mut vote) = PbftMessage::from(message.clone()) else { return vec![message] };
        vote.view = vote.view.max(view);
        // One vote of each sender counts, from any view.
        let counted = *self.0.entry((vote.view, vote.height, seal.by)).or_insert(vote.block);
        if counted == vote.block { vec![PbftMessage::Prepare(vote).into()] } else { Vec::new() }
    }

    fn window(&self, window: Window) -> Window {
        Window { views: View::ZERO..window.views.end, ..window }
    }
}

/// M11: a NEW-VIEW is compared with all view changes that its receiver has.
#[derive(Default)]
struct OwnSetOfChanges(BTreeSet<ReplicaId>);

impl Flaw<Pbft<Linked>> for OwnSetOfChanges {
    fn hears(&mut self, _: &Pbft<Linked>, message: PbftMessage, seal: &Seal) -> Vec<PbftMessage> {
        match &message {
            PbftMessage::ViewChange(_) => {
                self.0.insert(seal.by);
            }
            PbftMessage::NewView(new_view) => {
                let shown: BTreeSet<ReplicaId> = new_view.changes.iter().map(|signed| signed.by).collect();
                if shown != self.0 {
                    return Vec::new();
                }
            }
            _ => {}
        }
        vec![message]
    }
}

/// M13: a replica that has suspected a leader once counts as suspecting all later ones.
#[derive(Default)]
struct SuspicionsOfAllLeaders(BTreeSet<ReplicaId>);

impl Flaw<Pbft<Linked>> for SuspicionsOfAllLeaders {
    fn hears(&mut self, protocol: &Pbft<Linked>, message: PbftMessage, seal: &Seal) -> Vec<PbftMessage> {
        if let PbftMessage::Suspect { on, .. } = message {
            self.0.insert(seal.by);
            return if on { vec![message] } else { Vec::new() };
        }
        if self.0.contains(&seal.by) {
            vec![PbftMessage::Suspect { view: protocol.status().view, on: true }, message]
        } else {
            vec![message]
        }
    }
}

/// M21: a height from a signed message is used as an index.
#[derive(Default)]
struct HeightAsIndex;

impl Flaw<Pbft<Linked>> for HeightAsIndex {
    fn hears(&mut self, _: &Pbft<Linked>, message: PbftMessage, _: &Seal) -> Vec<PbftMessage> {
        if let PbftMessage::Status(standing) = &message {
            let table = [0u8; 256];
            for missing in &standing.missing {
                let place = usize::try_from(missing.height.0.saturating_sub(standing.stable.0)).unwrap();
                assert_eq!(table[place], 0);
            }
        }
        vec![message]
    }
}

const M10: Entry = Entry::of::<Flawed<Pbft<AllSigned>, VotesOfTwoViews>>();
const M11: Entry = Entry::of::<Flawed<Pbft<Linked>, OwnSetOfChanges>>();
const M13: Entry = Entry::of::<Flawed<Pbft<Linked>, SuspicionsOfAllLeaders>>();
const M21: Entry = Entry::of::<Flawed<Pbft<Linked>, HeightAsIndex>>();

/// Variants of PBFT. The parameter of `run` is the original, and `run` itself names the flawed variant.
const VARIANTS: [Exhibit; 4] = [
    Exhibit {
        id: "M10",
        failure: "votes of different views are counted together",
        variant: "pbft-signed: a PREPARE of an older view counts in this one",
        caught_by: &[Oracle::Accusation, Oracle::Agreement],
        within: 300,
        run: |_, seed| Ok(StandardRun::with(&M10, None, ByzantineChoice::Nobody, seed)?.run()),
    },
    Exhibit {
        id: "M11",
        failure: "two sets of view changes are mixed up: views change for ever",
        variant: "pbft: a NEW-VIEW has to show the view changes that its receiver has",
        caught_by: &[Oracle::Livelock],
        within: 100,
        run: |_, seed| Ok(StandardRun::with(&M11, None, ByzantineChoice::Nobody, seed)?.run()),
    },
    Exhibit {
        id: "M13",
        failure: "after a pause of two nodes for half an hour views change for ever",
        variant: "pbft: a replica that has suspected a leader once counts as suspecting all later ones",
        caught_by: &[Oracle::Livelock],
        within: 100,
        run: long_pause,
    },
    Exhibit {
        id: "M21",
        failure: "a number from a signed message is used as an index",
        variant: "pbft: heights in a STATUS are looked up in a table",
        caught_by: &[Oracle::Panic],
        within: 300,
        run: |_, seed| Ok(StandardRun::with(&M21, None, ByzantineChoice::All(Byzantine::Mutate), seed)?.run()),
    },
];

/// A pause that is longer than any timeout and any retry of a client.
const PAUSE_NS: u64 = secs(60);

/// Pauses two replicas for a long time while requests wait.
fn long_pause(_: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let short = ShortRun::new((&M13, 4, seed), Trace::default(), |_: &mut Settings, _| {})?;
    Ok(short.run(|world: &mut World, rng| {
        world.run_for(rng.between(ms(50), secs(1)))?;
        let mut ids = replaceable(world);
        rng.shuffle(&mut ids);
        for id in ids.into_iter().take(2) {
            world.plan(world.now(), Plan::Pause(id, world.now().plus(PAUSE_NS)));
        }
        world.run_for(PAUSE_NS)?;
        world.run_for(ms(100))
    }))
}

const PREFACE: &str = "\
# The museum, and mutations for the oracles

`UPDATE_EXPECT=1 cargo test -p quorate-protocols --test simulated museum` generates this page. The seeds are those of the
simulator, from 0 on. The last column has the number of the seed that shows the failure, counted from 1. The search begins at
the first seed, but for T1 at the 5291st, for T1b at the 1421st and for M19 at the seventh, because a search from the first
one takes long.

## Published failures

Each row is a broken variant of the code here, with the oracle that caught it. Rows M are those of the catalogue. Rows T, L
and S are the faults of the pacemaker from which that of chained HotStuff derives (its specification, section 6): of its
text, of its liveness and of its safety. The unbroken original of each variant passes the same seeds. *Twins* in a row means
twins scenarios: drawn leaders, and one replica that is two.

Rows Y and Z are mutations of Sync HotStuff (its specification, section 23) and of Opt Sync (section 20), which random
search finds too rarely. For a row with a *script*, one golden schedule replaces all seeds. The Byzantine replicas of these
schedules follow the script, so the schedules are tests (`sync_schedules.rs`, `sync_cold.rs`, `opt_schedules.rs`) and no text
files. The broken variants also do not broadcast the certificate of blocks that their timers commit
(`sync_hidden_certificates.rs`). With that second safeguard most of these mutations alone fork nothing, but each rule has to hold without it. Hiding the
certificates forks nothing by itself in any of these schedules; that is a test as well. Row Y13 shows the purpose of the
safeguard.

Rows P are failures of persistence that others have published. `lessons.rs` tests each of them under every protocol to which
it applies, most with the same broken variant (`lesson_flaws.rs`).

Rows W are mutations of Apollo (its notes, section 23), with golden schedules as well (`apollo_schedules.rs`). Rows V are
those of Artemis (its specification, section 21), of which `artemis_schedules.rs` has the schedules.

| row | published failure | variant | caught by | seeds |
|---|---|---|---|---|
";

const NO_VARIANTS_PREFACE: &str = "
## Failures without a variant

| row | reason |
|---|---|
";

const ORACLES_PREFACE: &str = "
## A mutation for each oracle

An oracle that never fires proves nothing. A test of its own shows that the oracle of replay notices outputs that do not
follow from the inputs.

| oracle | failure | mutation | caught by | seeds |
|---|---|---|---|---|
";

/// The verdict about a row, as a line of the table.
struct MuseumRow {
    id: &'static str,
    text: Option<String>,
}

impl MuseumRow {
    fn of(id: &'static str, texts: (&str, &str), caught: Option<(u64, Failure)>) -> Self {
        let (failure, variant) = texts;
        let text = caught.map(|(seeds, found)| {
            eprintln!("{id} after {seeds} seeds: {found}");
            format!("| {id} | {failure} | {variant} | {} | {seeds} |", found.oracle)
        });
        Self { id, text }
    }

    fn of_exhibit((exhibit, entry): (&Exhibit, &Entry)) -> Self {
        let caught = exhibit.catch(entry).unwrap().map(|caught| (caught.seeds, caught.failure));
        Self::of(exhibit.id, (exhibit.failure, exhibit.variant), caught)
    }

    fn of_row(row: &Row) -> Self {
        Self::of(row.id, (row.failure, row.variant), row.catch())
    }

    /// Returns the sort key: rows with one letter are neighbours, in the order of their numbers.
    fn place(&self) -> (Option<char>, usize, &'static str) {
        let number: String = self.id.chars().skip(1).take_while(char::is_ascii_digit).collect();
        (self.id.chars().next(), number.parse().unwrap_or_default(), self.id)
    }
}

/// Adds a line for each caught row to the table, and each other row to `missed`.
fn write_lines(lines: Vec<MuseumRow>, table: &mut String, missed: &mut Vec<&'static str>) {
    for MuseumRow { id, text } in lines {
        match text {
            Some(text) => writeln!(table, "{text}").unwrap(),
            None => missed.push(id),
        }
    }
}

#[test]
fn every_failure_of_the_museum_is_caught_and_every_oracle_fires() {
    let (mut table, mut missed) = (PREFACE.to_owned(), Vec::new());
    let with = |exhibits: &'static [Exhibit], entry: &'static Entry| {
        exhibits.iter().map(move |exhibit| MuseumRow::of_exhibit((exhibit, entry)))
    };
    let variants = VARIANTS.iter().map(|exhibit| MuseumRow::of_exhibit((exhibit, pbft_signed())));
    let rows =
        ROWS.iter().chain(RETURNS).chain(SYNCHRONOUS).chain(APOLLO).chain(ARTEMIS).map(MuseumRow::of_row);
    let mut museum: Vec<MuseumRow> = with(EXHIBITS, pbft()).chain(variants).chain(rows).collect();
    museum.sort_by_key(MuseumRow::place);
    write_lines(museum, &mut table, &mut missed);
    table.push_str(NO_VARIANTS_PREFACE);
    for (id, why) in NO_VARIANTS.iter().chain(RETURNS_WITHOUT) {
        writeln!(table, "| {id} | {why} |").unwrap();
    }
    table.push_str(ORACLES_PREFACE);
    write_lines(with(ORACLE_MUTATIONS, pbft()).collect(), &mut table, &mut missed);
    assert!(missed.is_empty(), "not caught: {missed:?}");
    expect_file!["../../../../docs/museum.md"].assert_eq(&table);
}
