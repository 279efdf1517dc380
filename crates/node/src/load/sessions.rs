//! Keys and sessions of the generator's clients.

use super::{Generator, LoadError, PATIENCE, nanos, settings};
use quorate_client::core::{Answer, Event};
use quorate_client::driver::PoolEvent;
use quorate_crypto::{Scheme, SigningKey};
use quorate_types::PublicKey;
use quorate_types::digest::keyed_tag;
use quorate_types::limits::REGISTER_KEYS_MAX;
use std::collections::BTreeSet;
use std::time::Duration;

/// The key of one of the generator's clients: a function of the seed, so that a run can be repeated on the
/// same cluster. Never for anything but load.
fn client_key(seed: u64, index: usize) -> SigningKey {
    let mut name = b"quorate load ".to_vec();
    name.extend_from_slice(&seed.to_le_bytes());
    name.extend_from_slice(&index.to_le_bytes());
    SigningKey::from_seed(Scheme::Ed25519, keyed_tag(&[0; 32], &name))
}

impl Generator {
    pub(super) fn open_sessions(&mut self, admin: SigningKey) -> Result<(), LoadError> {
        let keys: Vec<SigningKey> =
            (0..self.options.clients).map(|index| client_key(self.options.seed, index)).collect();
        self.register(admin, &keys)?;
        let settings = settings(&self.pool, &self.options);
        let mut waiting = BTreeSet::new();
        for key in keys {
            let id = self.pool.add(key, settings)?;
            waiting.insert(id);
            self.cores.push(id);
        }
        let until = self.pool.now().plus(nanos(PATIENCE));
        while !waiting.is_empty() {
            for event in self.hear()? {
                match event {
                    PoolEvent::Client(id, Event::Opened(_)) => {
                        waiting.remove(&id);
                    }
                    // Displaced while others were opened.
                    PoolEvent::Client(id, Event::SessionLost) if self.cores.contains(&id) => {
                        self.pool.reopen(id)?;
                        waiting.insert(id);
                    }
                    PoolEvent::Client(_, Event::OpenFailed(why)) => {
                        return Err(LoadError::Stuck(format!("a session was not opened: {why}")));
                    }
                    _ => {}
                }
            }
            if self.pool.now() > until {
                let text = format!(
                    "{} sessions were not opened in {PATIENCE:?}; {}",
                    waiting.len(),
                    self.pool.trouble()
                );
                return Err(LoadError::Stuck(text));
            }
        }
        Ok(())
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
        let until = self.pool.now().plus(nanos(PATIENCE));
        while left > 0 {
            for event in self.hear()? {
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
            }
            if self.pool.now() > until {
                let text = format!("the cluster gives no answer in {PATIENCE:?}; {}", self.pool.trouble());
                return Err(LoadError::Stuck(text));
            }
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Vec<PoolEvent>, LoadError> {
        let mut told = Vec::new();
        self.pool.poll(Duration::from_millis(50), &mut told)?;
        Ok(told)
    }
}
