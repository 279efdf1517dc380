//! Messages, records, parameters and pasts of every registered protocol. Registering a
//! protocol is enough.

use crate::runner::{Decoder, Read, written};
use crate::world::captured;
use quorate_consensus::Healed;
use quorate_replica::{NameInterner, Output, Replica, ReplicaSetup, RestoredLog};
use quorate_types::codec::put_bytes;
use quorate_types::wire::frame;
use quorate_types::{Digest, LogEntry, Mark, Reader, ReplicaId, Time};
use std::sync::Arc;

/// Bytes before a record in the log: its kind, its height and its scope.
const RECORD_KEY_BYTES: usize = 1 + 8 + 32;
/// Largest number of log entries that a replica is opened on.
const ENTRIES_MAX: usize = 24;

#[test]
fn messages_of_protocols_are_decoded_or_refused() {
    for run in captured() {
        let decode = |bytes: &[u8]| run.entry.decode_message(bytes);
        // The messages are unsigned: a signature is no part of a message.
        let bodies = run.frames(frame::PROTOCOL);
        let samples: Vec<Vec<u8>> = bodies
            .map(|body| match decode(body) {
                Ok(message) if !message.auth().is_signed() => body.clone(),
                _ => body[..body.len() - 64].to_vec(),
            })
            .collect();
        let name = format!("{}.message", run.entry.spec.name);
        Decoder::new(name, samples, |bytes| {
            let message = decode(bytes).inspect(|message| {
                // All accessors of the message work, and it can be shown.
                let (place, auth) = (message.place(), message.auth());
                let committee = run.genesis.committee();
                let mut claims = quorate_consensus::Claims::new(&committee, 3);
                message.claims(&mut claims);
                let mut payloads = Vec::new();
                message.bodies(&mut payloads);
                let _ = (claims.finish().is_ok(), message.once(), message.kind(), place, auth);
            });
            written(message, |message, out| message.encode(out)).into()
        })
        // The claims of a message take further memory until they are checked.
        .holding(24, 4 << 10)
        .costing(2)
        .fuzz();
    }
}

#[test]
fn records_of_protocols_are_decoded_or_refused() {
    for run in captured() {
        let records = run.log.iter().filter_map(|entry| match entry {
            LogEntry::Record(bytes) => bytes.get(RECORD_KEY_BYTES..).map(<[u8]>::to_vec),
            _ => None,
        });
        let mut samples: Vec<Vec<u8>> = records.filter(|record| record.len() < 4 << 10).collect();
        samples.sort_unstable();
        samples.dedup();
        let name = format!("{}.record", run.entry.spec.name);
        let record = run.entry.record;
        Decoder::new(name, samples, |bytes| {
            let read = record(bytes);
            if let Ok((key, again)) = &read {
                assert_eq!(record(again).map(|(key, _)| key).as_ref(), Ok(key));
            }
            read.map(|(_, again)| again).into()
        })
        .fuzz();
    }
}

/// Parameters are refused, or a replica opens with them and states its figures.
#[test]
fn parameters_of_protocols_are_decoded_or_refused() {
    for run in captured() {
        let defaults = (run.entry.params)().unwrap();
        let exam = (run.entry.exam_params)(20_000_000, false).unwrap();
        let samples = [defaults.to_string(), exam.to_string()].map(String::into_bytes).to_vec();
        let name = format!("{}.parameters", run.entry.spec.name);
        Decoder::new(name, samples, |bytes| {
            let text = std::str::from_utf8(bytes).ok();
            let Some(params) = text.and_then(|text| text.parse::<toml::Table>().ok()) else {
                return Read::Refused;
            };
            let committee = Arc::new(run.genesis.committee());
            let setup = ReplicaSetup {
                me: ReplicaId(1),
                committee: Arc::clone(&committee),
                genesis: Arc::new(run.genesis.clone()),
                params: params.clone(),
                wall_offset_ns: 1_770_000_000_000_000_000,
                secret: Digest([7; 32]),
            };
            let Ok(mut replica) = Replica::open(run.entry, setup, RestoredLog::default()) else {
                return Read::Refused;
            };
            replica.tick(Time(60_000_000_000));
            let healed = Healed {
                delta_ns: u64::MAX / 4,
                outage_ns: u64::MAX / 4,
                client_retry_ns: u64::MAX / 4,
                fetch_ns: u64::MAX / 4,
                restarted: usize::MAX,
            };
            (run.entry.recovery)(&params, &committee, &healed).unwrap();
            (run.entry.synchrony)(&params).unwrap();
            Read::Taken
        })
        .holding(64, 256 << 10)
        .costing(20)
        .fuzz();
    }
}

/// A log with valid checksums whose content this version would not have written: it is from another version, or from a
/// bug. It is refused, or a replica opens on it and all its accessors work.
#[test]
fn pasts_of_protocols_are_decoded_or_refused() {
    for run in captured() {
        let encode = |entry: &LogEntry| {
            let mut bytes = Vec::new();
            Output::Persist { mark: Mark(1), entry: entry.clone() }.encode(&mut bytes);
            bytes
        };
        let entries: Vec<Vec<u8>> =
            run.log.iter().map(encode).filter(|entry| entry.len() < 2 << 10).collect();
        let list = |entries: &[Vec<u8>]| {
            let mut bytes = Vec::new();
            entries.iter().for_each(|entry| put_bytes(&mut bytes, entry));
            bytes
        };
        let mut samples: Vec<Vec<u8>> = entries.chunks(ENTRIES_MAX).map(list).collect();
        samples.truncate(24);
        let name = format!("{}.past", run.entry.spec.name);
        let committee = Arc::new(run.genesis.committee());
        let genesis = Arc::new(run.genesis.clone());
        let params = (run.entry.params)().unwrap();
        let mut names = NameInterner::default();
        Decoder::new(name, samples, |bytes| {
            let mut past = RestoredLog::default();
            let (mut reader, mut count) = (Reader::new(bytes), 0);
            while !reader.rest().is_empty() && count < ENTRIES_MAX {
                count += 1;
                let Ok(entry) = reader.bytes("entry", 1 << 20) else { return Read::Refused };
                let Ok(Output::Persist { entry, .. }) =
                    Output::decode(&run.genesis.bodies, &mut names, entry)
                else {
                    return Read::Refused;
                };
                if past.absorb(entry).is_err() {
                    return Read::Refused;
                }
            }
            past.executed = past.stable.checkpoint.height;
            let setup = ReplicaSetup {
                me: ReplicaId(1),
                committee: Arc::clone(&committee),
                genesis: Arc::clone(&genesis),
                params: params.clone(),
                wall_offset_ns: 1_770_000_000_000_000_000,
                secret: Digest([7; 32]),
            };
            let Ok(mut replica) = Replica::open(run.entry, setup, past) else { return Read::Refused };
            replica.tick(Time(3_000_000_000));
            while replica.poll().is_some() {}
            Read::Taken
        })
        .holding(256, 1 << 20)
        .costing(20)
        .fuzz();
    }
}
