#![allow(clippy::all, clippy::restriction, missing_docs)]
use quorate_sim::seed::{Cast, Standard, again_with};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: Option<usize> = match args[1].as_str() {
        "4" => None,
        n => Some(n.parse().unwrap()),
    };
    let (from, to): (u64, u64) = {
        let (a, b) = args[2].split_once("..").unwrap();
        (a.parse().unwrap(), b.parse().unwrap())
    };
    let cast: Cast = args[3].parse().unwrap();
    let threads: usize = args.get(4).map_or(2, |t| t.parse().unwrap());
    let trace = args.get(5).is_some();
    let entry = quorate_protocols::find("pbft").unwrap();
    let next = AtomicU64::new(from);
    let begun = std::time::Instant::now();
    let found = Mutex::new(BTreeMap::new());
    let worst = Mutex::new((0u64, 0u64));
    let byz = Mutex::new(BTreeMap::<&str, u64>::new());
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= to {
                        return;
                    }
                    let mut standard = Standard::with(entry, n, cast, seed).unwrap();
                    if trace {
                        standard.world().trace().read_along(|line| println!("{line}"));
                    }
                    let report = standard.run();
                    let mut w = worst.lock().unwrap();
                    *w = (*w).max((report.recovered_ns, seed));
                    for k in report.byzantine.values() {
                        *byz.lock().unwrap().entry(k.name()).or_default() += 1;
                    }
                    if report.failure.is_some() {
                        eprintln!(
                            "{report}\n   {}\n   again: {}",
                            report.facts(),
                            again_with("pbft", n, cast, seed)
                        );
                        *found.lock().unwrap().entry(report.failure.as_ref().unwrap().oracle).or_insert(0) +=
                            1;
                    }
                    if seed % 1000 == 999 {
                        eprintln!("at {seed}, {:.0} s", begun.elapsed().as_secs_f64());
                    }
                    if trace {
                        println!("{report}\n{}", report.facts());
                    }
                }
            });
        }
    });
    println!(
        "n={} {}..{} {cast}: failures {:?}; byzantine {:?}; worst recovery {:?}; {:.1} s",
        args[1],
        from,
        to,
        found.lock().unwrap(),
        byz.lock().unwrap(),
        worst.lock().unwrap(),
        begun.elapsed().as_secs_f64()
    );
}
