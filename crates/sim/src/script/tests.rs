//! Tests without a protocol: tokens, columns, differences. The tests of the protocols play the scripts.

use super::command::{Command, Until};
use super::rules::RuleAction;
use super::script_trace::{ObservedFrame, ScriptTrace};
use super::tokens::{place, span, without_comment};
use super::*;
use crate::frame::{Content, Frame};
use bytes::Bytes;
use quorate_types::mutate::mutate;
use quorate_types::rng::Rng;
use quorate_types::wire::{Lane, frame};
use quorate_types::{Digest, Height, Kind, ReplicaId, Statement, Time, View};

#[test]
fn spans_have_units() {
    for (text, ns) in [("5ms", 5_000_000), ("2s", 2_000_000_000), ("3us", 3_000), ("7ns", 7), ("0", 0)] {
        assert_eq!(span(text), Ok(ns), "{text}");
    }
    for text in ["5", "ms", "-1s", "1.5s", "99999999999999999999s", "9999999999999999s", ""] {
        assert!(span(text).unwrap_err().contains("such as `5ms`"), "{text}");
    }
}

#[test]
fn places_are_replicas_followed_by_clients() {
    assert_eq!(
        [place("0", 4), place("r3", 4), place("c0", 4), place("c2", 4)],
        [Some(0), Some(3), Some(4), Some(6)]
    );
    assert_eq!([place("4", 4), place("x", 4), place("c", 4), place("", 4)], [None; 4]);
    assert_eq!(without_comment("  run 5ms # and so on"), "run 5ms");
}

#[test]
fn lists_end_at_another_word() {
    match Command::parse("run until height 3 on 0 r2 within 7s").unwrap() {
        Command::RunUntil(Until::Height(height, on), within) => {
            assert_eq!((height, on, within), (Height(3), vec![ReplicaId(0), ReplicaId(2)], 7_000_000_000));
        }
        other => panic!("{other:?}"),
    }
    let rule = match Command::parse("drop r0 1 -> * commit").unwrap() {
        Command::Rule(rule) => rule,
        other => panic!("{other:?}"),
    };
    assert_eq!((rule.act, rule.names()), (RuleAction::Drop, vec![ReplicaId(0), ReplicaId(1)]));
}

/// Every listed command parses by its name.
#[test]
fn listed_commands_are_complete() {
    for (usage, _) in COMMANDS {
        let name = usage.split_whitespace().next().unwrap();
        let said = Command::parse(name).map_or_else(|why| why, |command| format!("{command:?}"));
        assert!(!said.contains("no command is named"), "{said}");
    }
}

fn observed(at: u64, to: u16, subject: u8, act: Option<RuleAction>) -> ObservedFrame {
    let statement = Statement::new(Kind::new("vote"), View(2), Height(7), Digest([subject; 32]));
    let content = Content {
        kind: Kind::new("vote"),
        view: View(2),
        height: Height(7),
        statement: Some(statement),
        is_once: true,
    };
    let (from, to, body) = (ReplicaId(1), ReplicaId(to), Bytes::from(vec![subject]));
    let (lane, frame_type) = (Lane::Consensus, frame::PROTOCOL);
    ObservedFrame::of(Time(at), &Frame { from, to, lane, frame_type, body, content }, act)
}

#[test]
fn one_frame_to_several_is_one_line_and_blocks_have_letters() {
    let mut trace = ScriptTrace::new(4, Time(1_000), &[]);
    let mut all = observed(2_000_000, 0, 9, None);
    assert!(all.joins(&observed(2_000_000, 2, 9, None)) && all.joins(&observed(2_000_000, 3, 9, None)));
    assert!(!all.joins(&observed(2_000_000, 3, 8, None)), "another block");
    assert!(!all.joins(&observed(2_000_000, 3, 9, Some(RuleAction::Drop))), "another fate");
    assert!(!all.joins(&observed(2_000_001, 3, 9, None)), "another time");
    trace.sends(&all);
    trace.sends(&observed(2_000_000, 3, 8, Some(RuleAction::Drop)));
    trace.sends(&observed(1_500_000, 3, 9, Some(RuleAction::Hold)).released(Time(3_000_000)));
    trace.happens(Time(1_001_000), "c0", "asks", "get k");
    assert_eq!(trace.take_lines(Time(1_900_000)), ["   1.000  c0  asks          get k"]);
    let lines = [
        "   1.999  r1  -> all        vote             v2 h7   A",
        "   1.999  r1  -x r3         vote             v2 h7   B   lost",
        "   2.999  r1  -> r3         vote             v2 h7   A",
    ];
    assert_eq!(trace.take_lines(Time(u64::MAX)), lines);
}

#[test]
fn hidden_kinds_are_not_shown() {
    let mut trace = ScriptTrace::new(4, Time::ZERO, &[Kind::new("vote")]);
    let mut lines = |change: &dyn Fn(&mut ScriptTrace)| {
        change(&mut trace);
        trace.sends(&observed(1, 3, 9, None));
        trace.replies(Time(1), ReplicaId(0), 0, "reply");
        trace.take_lines(Time(1)).len()
    };
    assert_eq!(lines(&|_| {}), 1, "votes belong to no block here");
    assert_eq!(lines(&|trace| trace.show("vote")), 2);
    assert_eq!(lines(&|trace| trace.hide("reply")), 1);
    assert_eq!(lines(&|trace| trace.hide("vote")), 0);
}

#[test]
fn first_difference_is_found() {
    assert_eq!(first_difference("a\nb\n", "a\nb"), None);
    let shown = |written, played| first_difference(written, played).unwrap();
    assert_eq!(shown("a\nb", "a\nc"), "line 2\n  written: b\n  played:  c");
    assert_eq!(shown("a", "a\nc"), "line 2\n  written: (the end)\n  played:  c");
}

/// People write scripts by hand, so any line is either a command or an error.
#[test]
fn malformed_lines_are_errors() {
    let lines: Vec<&[u8]> = COMMANDS.iter().map(|(line, _)| line.as_bytes()).collect();
    let (mut rng, mut taken) = (Rng::new(5), 0u32);
    for _ in 0..40_000 {
        let (line, other) = (*rng.pick(&lines).unwrap(), *rng.pick(&lines).unwrap());
        let mut bytes = line.to_vec();
        (0..rng.below(3)).for_each(|_| mutate(&mut rng, &mut bytes, other));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        taken += u32::from(Command::parse(without_comment(&text)).is_ok());
    }
    assert!((1..39_000).contains(&taken), "{taken} of 40000 lines are commands");
}
