//! Reads of a history's keys at the end of a run.

use super::generator::Generator;
use super::numbers::nanos;
use super::options::{LoadError, PATIENCE};
use quorate_app::KvOp;
use quorate_client::core::SubmitError;
use quorate_history::{Call, Op};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Upper bound on the further bytes of a key or value in a bundle or a reply.
const AROUND_BYTES: usize = 32;
/// The largest number of keys that one bundle reads.
const KEYS_MAX: usize = 1_000;

impl Generator {
    /// Reads every key of the history, so that the history has the final values.
    ///
    /// # Errors
    /// Fails when the driver fails or the cluster gives no answer in time.
    pub fn read_back(&mut self) -> Result<(), LoadError> {
        let keys = self.history.records().iter().map(|record| record.op.key().to_owned());
        let mut keys: VecDeque<String> = keys.collect::<BTreeSet<_>>().into_iter().collect();
        let until = self.pool.now().plus(nanos(PATIENCE));
        let before = self.history.records().len();
        let expected = before.saturating_add(keys.len());
        while (!keys.is_empty() || !self.flights.is_empty()) && self.pool.now() < until {
            while !keys.is_empty() && self.read_some(&mut keys) {}
            self.pool.poll(Duration::from_millis(20), &mut self.events)?;
            self.take_answers();
        }
        self.give_up_all();
        let read =
            self.history.records().iter().skip(before).filter(|record| record.answered.is_some()).count();
        if before.saturating_add(read) < expected {
            let text = format!("the keys could not be read at the end; {}", self.pool.trouble());
            return Err(LoadError::Stuck(text));
        }
        Ok(())
    }

    /// Submits a bundle of reads whose results have room in one reply. Returns false if there is no room for the bundle.
    fn read_some(&mut self, keys: &mut VecDeque<String>) -> bool {
        let limits = self.pool.settings().limits;
        let Some(id) = self.cores.first().copied() else { return false };
        let key_bytes = self.options.mix.key_bytes_max(self.options.clients);
        let each = self.options.mix.request_bytes().max(key_bytes).saturating_add(AROUND_BYTES);
        let room = usize::try_from(limits.reply_bytes_max.min(limits.bundle_bytes_max)).unwrap_or(usize::MAX);
        let most = usize::try_from(limits.bundle_requests_max).unwrap_or(usize::MAX).min(KEYS_MAX);
        let count = room.checked_div(each).unwrap_or(0).clamp(1, most.max(1)).min(keys.len());
        let gets: Vec<Vec<u8>> =
            keys.iter().take(count).map(|key| KvOp::Get { key: key.as_bytes() }.to_bytes()).collect();
        let now = self.pool.now();
        let Some(core) = self.pool.core(id) else { return false };
        let submitted = match core.submit_bundle(now, gets.iter().map(Vec::as_slice)) {
            Ok(ticket) => ticket,
            Err(SubmitError::Full) => return false,
            Err(why) => {
                tracing::warn!("keys cannot be read: {why}");
                return false;
            }
        };
        let flight = self.flights.entry((id, submitted.bundle)).or_default();
        let call = |key| Call { client: 0, op: Op::Get { key }, at: now };
        flight.calls.extend(keys.drain(..count).map(call));
        true
    }
}
