use super::*;

#[cfg(not(feature = "profile"))]
#[test]
fn program_without_a_profiler_gives_advice() {
    for (_, profile) in Profile::NAMES {
        let refused = Profiler::start(profile).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("--features profile"), "{refused}");
        assert_eq!(refused.code(), 2);
    }
}

#[cfg(feature = "profile")]
mod with {
    use super::*;
    use crate::alloc::Counting;
    use std::time::{Duration, Instant};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[inline(never)]
    fn fill_lists() -> usize {
        (0..20_000).map(|i| std::hint::black_box(vec![i; 8]).len()).sum()
    }

    /// Both kinds in one test, because the profiler belongs to the whole process.
    #[test]
    fn profiles_name_the_function_with_the_work() {
        let profiler = Profiler::start(Profile::Alloc).unwrap();
        std::hint::black_box(fill_lists());
        let profile = profiler.finish().unwrap();
        let of_function = |profile: &str| -> u64 {
            let lines = profile.lines().filter(|line| line.contains("fill_lists"));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        let allocations = of_function(&profile);
        assert!((19_000..=21_000).contains(&allocations), "{allocations} of 20,000 in\n{profile}");
        assert!(!profile.contains("quorate_node::profile::allocations"), "{profile}");

        let profiler = Profiler::start(Profile::Cpu).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let begun = cpu();
        while cpu() < begun + Duration::from_millis(300) && Instant::now() < deadline {
            std::hint::black_box(fill_lists());
        }
        let profile = profiler.finish().unwrap();
        assert!(of_function(&profile) > 10, "{profile}");
    }

    fn cpu() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
    }
}
