//! Keys and sessions of the generator's clients.

use super::generator::Generator;
use super::numbers::nanos;
use super::options::{LoadError, LoadOptions, PATIENCE};
use quorate_client::core::{Answer, Event, Settings};
use quorate_client::driver::{ClientPool, PoolEvent};
use quorate_crypto::{Scheme, SigningKey};
use quorate_types::PublicKey;
use quorate_types::digest::keyed_tag;
use quorate_types::limits::REGISTER_KEYS_MAX;
use std::collections::BTreeSet;
use std::time::Duration;

/// The number of different keys of all generators. Registered keys stay registered for ever, and there is room for
/// [`quorate_types::limits::KEYS_MAX`]: this limit leaves room for other clients.
const KEYS: u32 = 1 << 16;

/// Returns the key of one of the generator's clients. It is used for load alone.
fn client_key(number: u32) -> SigningKey {
    let mut name = b"quorate load ".to_vec();
    name.extend_from_slice(&number.to_le_bytes());
    SigningKey::from_seed(Scheme::Ed25519, keyed_tag(&[0; 32], &name))
}

/// Returns the keys of one generator: `count` consecutive ones. Each process begins at a random place, because only few
/// connections with one key receive replies.
fn client_keys(first: u32, count: usize) -> Vec<SigningKey> {
    (0..KEYS).cycle().skip(usize::try_from(first % KEYS).unwrap_or(0)).take(count).map(client_key).collect()
}

impl Generator {
    pub(super) fn open_sessions(&mut self, admin: SigningKey) -> Result<(), LoadError> {
        let first = getrandom::u32().map_err(|error| LoadError::Stuck(error.to_string()))?;
        let keys = client_keys(first, self.options.clients);
        self.register(admin, &keys)?;
        let settings = settings(&self.pool, &self.options);
        let mut waiting = BTreeSet::new();
        for key in keys {
            let id = self.pool.add(key, settings)?;
            waiting.insert(id);
            self.cores.push(id);
        }
        let cores = self.cores.clone();
        self.poll_until("all sessions were opened", |pool, event| {
            match event {
                PoolEvent::Client(id, Event::Opened(_)) => {
                    waiting.remove(&id);
                }
                // Another session has displaced it.
                PoolEvent::Client(id, Event::SessionLost) if cores.contains(&id) => {
                    pool.reopen(id)?;
                    waiting.insert(id);
                }
                PoolEvent::Client(_, Event::OpenFailed(why)) => {
                    return Err(LoadError::Stuck(format!("a session was not opened: {why}")));
                }
                _ => {}
            }
            Ok(waiting.is_empty())
        })
    }

    fn register(&mut self, admin: SigningKey, keys: &[SigningKey]) -> Result<(), LoadError> {
        let settings = self.pool.settings();
        let id = self.pool.add(admin, settings)?;
        let public: Vec<PublicKey> = keys.iter().map(SigningKey::public).collect();
        let mut left = 0usize;
        for keys in public.chunks(REGISTER_KEYS_MAX) {
            let now = self.pool.now();
            let Some(core) = self.pool.core(id) else { break };
            core.submit_keys(now, keys.iter().copied())
                .map_err(|why| LoadError::Stuck(format!("cannot register keys: {why}")))?;
            left = left.saturating_add(1);
        }
        self.poll_until("the keys were registered", |_, event| {
            match event {
                PoolEvent::Client(_, Event::Done { answer: Answer::Registered(_), .. }) => {
                    left = left.saturating_sub(1);
                }
                PoolEvent::Client(_, Event::Failed { why, .. } | Event::OpenFailed(why)) => {
                    let text = format!("the admin key cannot register clients: {why}");
                    return Err(LoadError::Stuck(text));
                }
                _ => {}
            }
            Ok(left == 0)
        })
    }

    /// Handles all events until `handle` returns true for the last one of a poll.
    fn poll_until(
        &mut self,
        goal: &str,
        mut handle: impl FnMut(&mut ClientPool, PoolEvent) -> Result<bool, LoadError>,
    ) -> Result<(), LoadError> {
        let until = self.pool.now().plus(nanos(PATIENCE));
        let mut events = Vec::new();
        loop {
            self.pool.poll(Duration::from_millis(50), &mut events)?;
            let mut is_done = false;
            for event in events.drain(..) {
                is_done = handle(&mut self.pool, event)?;
            }
            if is_done {
                return Ok(());
            }
            if self.pool.now() > until {
                let trouble = self.pool.trouble();
                return Err(LoadError::Stuck(format!("{PATIENCE:?} were over before {goal}; {trouble}")));
            }
        }
    }
}

/// Returns the settings of the generator's clients, which may have as many bundles in flight as the run needs.
fn settings(pool: &ClientPool, options: &LoadOptions) -> Settings {
    let mut settings = pool.settings();
    if options.bundle.is_some() || options.presign > 0 {
        // The run limits the bundles in flight, not the client.
        settings.in_flight_max = usize::try_from(settings.client_window).unwrap_or(usize::MAX);
    }
    settings.audience = options.audience;
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_share_a_limited_set_of_keys() {
        let publics = |first, count| -> BTreeSet<PublicKey> {
            client_keys(first, count).iter().map(SigningKey::public).collect()
        };
        let (one, other) = (publics(7, 20), publics(27, 20));
        assert_eq!((one.len(), one.intersection(&other).count()), (20, 0));
        assert_eq!(publics(KEYS - 1, 2), publics(u32::MAX, 2), "around the end");
        assert_eq!(publics(KEYS - 1, 2).intersection(&publics(0, 1)).count(), 1);
    }
}
