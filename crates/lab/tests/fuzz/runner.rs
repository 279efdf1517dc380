//! The runner, which tries a decoder with a chosen number of inputs.

use crate::corpus::Corpus;
use crate::memory::most_held;
use quorate_types::digest::hex;
use quorate_types::mutate::{arbitrary, mutate};
use quorate_types::rng::Rng;
use quorate_types::{DecodeError, Wire};
use std::env;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Number of inputs for a decoder whose work is cheap.
const INPUTS: u64 = 100_000;
/// Largest number of arbitrary bytes.
const ARBITRARY_BYTES_MAX: usize = 400;
/// An input that takes longer hangs, also on a busy machine.
const HANGS: Duration = Duration::from_secs(60);
/// Smallest number of inputs for which the share of accepted ones has a meaning.
const FEW: u64 = 200;
/// Time between two lines about progress in the long form.
const SAYS: Duration = Duration::from_secs(10);

/// The result of decoding an input.
pub(crate) enum Read {
    /// The input is refused.
    Refused,
    /// The input is accepted, and its value is encoded as these bytes.
    Written(Vec<u8>),
    /// The input is accepted; its value may have several encodings.
    Taken,
}

impl<E> From<Result<Vec<u8>, E>> for Read {
    fn from(result: Result<Vec<u8>, E>) -> Self {
        result.map_or(Self::Refused, Self::Written)
    }
}

impl From<bool> for Read {
    fn from(taken: bool) -> Self {
        if taken { Self::Taken } else { Self::Refused }
    }
}

/// The function of a decoder.
type Reader<'a> = Box<dyn FnMut(&[u8]) -> Read + 'a>;
/// The function that changes a valid input, with pieces of another.
type Change = fn(&mut Rng, &mut Vec<u8>, &[u8]);

/// A decoder of bytes from others.
pub(crate) struct Decoder<'a> {
    name: String,
    samples: Vec<Vec<u8>>,
    read: Reader<'a>,
    /// Limits of the memory held at the same time: a multiple of the input's size, and further bytes.
    memory: (usize, usize),
    /// The cost of one input, as a multiple of a cheap one.
    cost: u64,
    change: Change,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder with valid inputs. Its name is that of its file in the corpus.
    pub(crate) fn new(
        name: impl Into<String>,
        samples: Vec<Vec<u8>>,
        read: impl FnMut(&[u8]) -> Read + 'a,
    ) -> Self {
        let read = Box::new(read);
        Self { name: name.into(), samples, read, memory: (16, 1 << 10), cost: 1, change: mutate }
    }

    /// Creates a decoder of values with exactly one encoding.
    pub(crate) fn of<T: Wire + Debug>(name: &str, samples: &[T]) -> Self {
        let samples = samples.iter().map(Wire::to_bytes).collect();
        Self::new(name, samples, |bytes| T::from_bytes(bytes).map(|value| value.to_bytes()).into())
    }

    /// Limits the memory to a multiple of the input's size, and further bytes.
    pub(crate) fn holding(self, times: usize, beside: usize) -> Self {
        Self { memory: (times, beside), ..self }
    }

    /// Sets the cost of one input, as a multiple of a cheap one.
    pub(crate) fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Sets the function that changes valid inputs.
    pub(crate) fn changed_by(self, change: Change) -> Self {
        Self { change, ..self }
    }

    /// Runs the decoder, with the inputs of the corpus first.
    pub(crate) fn fuzz(self) {
        let corpus = Corpus::load(&self.name);
        if env::var("QUORATE_FUZZ_CORPUS").is_ok_and(|wish| wish == "rewrite") {
            return corpus.rewrite(&self.name, &self.samples);
        }
        self.fuzz_with(&corpus);
    }

    fn fuzz_with(mut self, corpus: &Corpus) {
        assert!(!self.samples.is_empty(), "{}: no valid input to change", self.name);
        let kept = corpus.valid.len();
        let mut samples = corpus.valid.clone();
        samples.extend(std::mem::take(&mut self.samples));
        let seed = seed();
        let watch = Watch::over(&self.name, seed);
        for (at, sample) in samples.iter().enumerate() {
            let whose = if at < kept { "of the corpus" } else { "made here" };
            let is_valid = self.judge(sample, &|| format!("valid input {at}, {whose}"));
            assert!(is_valid, "{}: valid input {at}, {whose}, is refused: {}", self.name, hex(sample));
        }
        for found in corpus.found() {
            self.judge(found, &|| "has found something before".to_owned());
        }
        let mut rng =
            Rng::new(seed ^ self.name.bytes().fold(0, |sum, byte| sum << 5 ^ sum ^ u64::from(byte)));
        let (inputs, start) = (setting("QUORATE_FUZZ_INPUTS").unwrap_or(INPUTS / self.cost), Instant::now());
        let (mut taken, mut said) = (0u64, Instant::now());
        for number in 0..inputs {
            let input = self.input(&mut rng, &samples);
            taken += u64::from(self.judge(&input, &|| format!("seed {seed}, input {number}")));
            watch.at.store(number, Ordering::Relaxed);
            if number.is_multiple_of(64) && said.elapsed() > SAYS {
                said = Instant::now();
                eprintln!("{}: {number} of {inputs} inputs, {taken} accepted", self.name);
            }
        }
        println!("{}: {inputs} inputs, {taken} accepted, {} ms", self.name, start.elapsed().as_millis());
        // A decoder that refuses or accepts everything is not tested.
        let is_mixed = taken > 0 && taken < inputs;
        assert!(is_mixed || inputs < FEW, "{}: {taken} of {inputs} inputs are accepted", self.name);
    }

    fn input(&self, rng: &mut Rng, samples: &[Vec<u8>]) -> Vec<u8> {
        let (sample, other) = (rng.pick(samples).unwrap(), rng.pick(samples).unwrap());
        match rng.below(10) {
            0 => arbitrary(rng, ARBITRARY_BYTES_MAX),
            1 => {
                // Most arbitrary bytes fail at the first byte; these reach further.
                let mut input = sample[..rng.index(sample.len().min(40) + 1)].to_vec();
                input.extend(arbitrary(rng, ARBITRARY_BYTES_MAX));
                input
            }
            _ => {
                let mut input = sample.clone();
                (self.change)(rng, &mut input, other);
                input
            }
        }
    }

    /// Runs one input and returns whether it is accepted. Each violation ends the test, with the input in hex.
    fn judge(&mut self, input: &[u8], what: &dyn Fn() -> String) -> bool {
        let name = &self.name;
        let shown = Shown { name, input, what };
        let read = &mut self.read;
        let (read, held) = most_held(|| read(input));
        let (times, beside) = self.memory;
        let most = times * input.len() + beside;
        assert!(held <= most, "{held} bytes are held at the same time for {} bytes", input.len());
        let taken = match read {
            Read::Refused => false,
            Read::Taken => true,
            Read::Written(bytes) => {
                assert_eq!(hex(&bytes), hex(input), "what was accepted is written in another way");
                true
            }
        };
        std::mem::forget(shown);
        taken
    }
}

/// Prints the input when the decoder panics.
struct Shown<'a> {
    name: &'a str,
    input: &'a [u8],
    what: &'a dyn Fn() -> String,
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let Self { name, input, what } = self;
        eprintln!("{name}: {}: {}", what(), hex(input));
        eprintln!(
            "a line of its own under `# found` in tests/fuzz/corpus/{name}.txt tries it again, every time"
        );
    }
}

/// Ends the process when one input takes too long.
struct Watch {
    at: Arc<AtomicU64>,
    /// The sender whose end stops the watch.
    _over: Sender<()>,
}

impl Watch {
    fn over(name: &str, seed: u64) -> Self {
        let (over, heard) = channel::<()>();
        let at = Arc::new(AtomicU64::new(0));
        let (seen, name) = (Arc::clone(&at), name.to_owned());
        std::thread::spawn(move || {
            let mut last = 0;
            while heard.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
                let now = seen.load(Ordering::Relaxed);
                if now == last && now > 0 {
                    eprintln!("{name}: seed {seed}, the input after {now} takes more than {HANGS:?}");
                    std::process::abort();
                }
                last = now;
            }
        });
        Self { at, _over: over }
    }
}

/// Returns the value of a variable of the environment.
pub(crate) fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.replace('_', "").parse().unwrap_or_else(|_| panic!("{name}: expected a number, found {text}")))
}

/// Returns the seed of this run.
pub(crate) fn seed() -> u64 {
    if env::var("QUORATE_FUZZ_SEED").is_ok_and(|wish| wish == "fresh") {
        return quorate_client::keys::random_u64().unwrap();
    }
    setting("QUORATE_FUZZ_SEED").unwrap_or(1)
}

/// A temporary folder for decoders that read files. It is in memory if the machine has such a place, because each input
/// writes the files again.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The result of reading a value in another way than by filling its bytes.
pub(crate) fn written<T>(
    value: Result<T, DecodeError>,
    write: impl FnOnce(&T, &mut Vec<u8>),
) -> Result<Vec<u8>, DecodeError> {
    let value = value?;
    let mut bytes = Vec::new();
    write(&value, &mut bytes);
    Ok(bytes)
}

/// Violations that the runner has to find: each decoder here commits one of them.
mod self_tests {
    use super::{Corpus, Decoder, Read};

    fn decoder(read: impl FnMut(&[u8]) -> Read + 'static) -> Decoder<'static> {
        Decoder::new("self-test", vec![vec![1, 2, 3, 4]], read).costing(100)
    }

    #[test]
    #[should_panic(expected = "what was accepted is written in another way")]
    fn second_encoding_is_found() {
        decoder(|bytes| Read::Written(bytes.iter().map(|byte| byte & 0x7f).collect()))
            .fuzz_with(&Corpus::default());
    }

    #[test]
    #[should_panic(expected = "bytes are held at the same time")]
    fn allocation_by_an_unchecked_length_is_found() {
        decoder(|bytes| {
            let Some(length) = bytes.first_chunk::<4>() else { return Read::Refused };
            let room: Vec<u8> = Vec::with_capacity(u32::from_le_bytes(*length) as usize % (1 << 27));
            (room.capacity() > 0).into()
        })
        .holding(16, 80 << 20)
        .fuzz_with(&Corpus::default());
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn panic_of_a_decoder_is_found() {
        decoder(|bytes| {
            assert!(bytes.len() < 100 || bytes[7] % 4 != 0, "on purpose");
            (bytes.len() < 50).into()
        })
        .fuzz_with(&Corpus::default());
    }

    #[test]
    #[should_panic(expected = "inputs are accepted")]
    fn decoder_without_refusals_is_found() {
        decoder(|_| Read::Taken).fuzz_with(&Corpus::default());
    }
}
