use super::*;
use crate::cluster::{AskAgain, LinkMode};
use crate::driver::fake::{Behaviour, Fake, answer as expected, ask_again, no_listener};
use quorate_crypto::Scheme;
use std::future::Future;

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(Scheme::Ed25519, [number; 32])
}

fn options() -> Options {
    Options { timeout: Duration::from_secs(60), ..Options::default() }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn concurrent_calls_share_bundles_and_receive_their_own_results() {
    for links in [LinkMode::Tls, LinkMode::Plain] {
        let fake = Fake::start(4, links);
        fake.behave(3, Behaviour::Wrong);
        run(async {
            let client = AsyncClient::connect(fake.info.clone(), key(1), options()).await.unwrap();
            assert_eq!(client.call(b"alone").await.unwrap(), expected(b"alone"));
            let calls: Vec<_> = (0..500u32)
                .map(|i| {
                    let client = client.clone();
                    tokio::spawn(async move { client.call(i.to_le_bytes()).await })
                })
                .collect();
            for (i, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), expected(&(i as u32).to_le_bytes()));
            }
        });
        assert_eq!(fake.state().executed.len(), 501);
        assert!(fake.state().bundles < 250, "{} bundles", fake.state().bundles);
    }
}

#[test]
fn call_for_order_returns_the_place_that_one_replica_proves() {
    let mut fake = Fake::start(4, LinkMode::Tls);
    fake.behave(0, Behaviour::Wrong);
    run(async {
        let client = AsyncClient::connect(fake.info.clone(), key(1), options()).await.unwrap();
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call(b"other").await }
        });
        assert_ne!(client.order(b"op").await.unwrap().by, ReplicaId(0));
        assert_eq!(call.await.unwrap().unwrap(), expected(b"other"));
        fake.info.protocol = quorate_types::ProtocolId::new("pbft");
        let other = AsyncClient::connect(fake.info.clone(), key(2), options()).await.unwrap();
        let refused = other.order(b"never").await;
        assert!(matches!(refused, Err(ClientError::Submit(_))), "{refused:?}");
    });
    assert_eq!(fake.state().executed.len(), 2);
}

#[test]
fn operations_are_executed_once_across_broken_connections() {
    let fake = Fake::start(4, LinkMode::Tls);
    let mut info = fake.info.clone();
    info.replicas[2].address = no_listener();
    run(async {
        let client = AsyncClient::connect(info, key(1), options()).await.unwrap();
        for i in 0..60u8 {
            if i % 20 == 7 {
                fake.cut();
            }
            assert_eq!(client.call([i]).await.unwrap(), expected(&[i]));
        }
    });
    assert_eq!(fake.state().executed, (0..60u8).map(|i| vec![i]).collect::<Vec<_>>());
}

#[test]
fn session_lost_while_idle_is_replaced_unnoticed() {
    let fake = Fake::start(4, LinkMode::Tls);
    run(async {
        let client = AsyncClient::connect(fake.info.clone(), key(1), options()).await.unwrap();
        fake.forget_sessions();
        assert_eq!(client.call(b"idle").await.unwrap(), expected(b"idle"));
        assert_eq!(client.call(b"next").await.unwrap(), expected(b"next"));
    });
    assert_eq!(fake.state().executed, [b"idle", b"next"], "each once");
}

#[test]
fn only_reads_without_room_are_repeated_alone() {
    let mut fake = Fake::start(4, LinkMode::Tls);
    fake.info.ask_again = Some(AskAgain(ask_again));
    let ops: Vec<Vec<u8>> = (0..60u8)
        .map(|i| match i % 3 {
            0 => [b"large ", &[i][..]].concat(),
            1 => [b"large ", &[i][..], b"write"].concat(),
            _ => vec![i],
        })
        .collect();
    run(async {
        let client = AsyncClient::connect(fake.info.clone(), key(1), options()).await.unwrap();
        let calls: Vec<_> = ops
            .iter()
            .map(|op| {
                let (client, op) = (client.clone(), op.clone());
                tokio::spawn(async move { client.call(op).await })
            })
            .collect();
        for (op, call) in ops.iter().zip(calls) {
            let result = call.await.unwrap().unwrap();
            let is_write = op.ends_with(b"write");
            assert!(result == expected(op) || is_write && result == b"no room", "{op:?}: {result:?}");
        }
    });
    let executed = fake.state().executed.clone();
    for op in &ops {
        let times = executed.iter().filter(|done| *done == op).count();
        let is_read = op.starts_with(b"large") && !op.ends_with(b"write");
        assert!(times == 1 || is_read && times == 2, "{op:?}: {times} times");
    }
    assert!(executed.len() > ops.len(), "no read was repeated");
}

#[test]
fn late_call_describes_its_attempts() {
    let fake = Fake::start(4, LinkMode::Tls);
    run(async {
        let short = Options { timeout: Duration::from_secs(1), ..options() };
        let client = AsyncClient::connect(fake.info.clone(), key(1), options()).await.unwrap();
        let client = AsyncClient { timeout: short.timeout, ..client };
        for replica in 1..4 {
            fake.behave(replica, Behaviour::Silent);
        }
        let late = client.call(b"op").await.unwrap_err();
        let ClientError::Timeout { tried, fate, .. } = &late else { panic!("{late:?}") };
        assert_eq!(*fate, Fate::Unknown);
        assert!(tried.contains("1 reports digest ") && tried.contains("3 have not answered"), "{tried}");
    });
}

#[test]
fn failed_connect_reports_the_reason() {
    let fake = Fake::start(4, LinkMode::Tls);
    fake.state().registered = Some(std::iter::empty().collect());
    let mut unreachable = fake.info.clone();
    for replica in &mut unreachable.replicas {
        replica.address = no_listener();
    }
    run(async {
        let refused = AsyncClient::connect(fake.info.clone(), key(1), options()).await.err();
        assert!(matches!(refused, Some(ClientError::Failed(Failure::NotRegistered))), "{refused:?}");
        let short = Options { timeout: Duration::from_secs(1), ..options() };
        let Some(ClientError::Timeout { trouble, .. }) =
            AsyncClient::connect(unreachable, key(1), short).await.err()
        else {
            panic!("connected without a listener");
        };
        assert!(trouble.contains("replica 3") && trouble.contains("refused"), "{trouble}");
    });
}

#[test]
fn cancelled_call_harms_no_other_call() {
    let fake = Fake::start(4, LinkMode::Plain);
    run(async {
        let client = AsyncClient::connect(fake.info.clone(), key(1), options()).await.unwrap();
        for i in 0..100u8 {
            let call = tokio::spawn({
                let client = client.clone();
                async move { client.call([i, 1]).await }
            });
            if i % 2 == 0 {
                tokio::task::yield_now().await;
            }
            call.abort();
            assert_eq!(client.call([i]).await.unwrap(), expected(&[i]));
        }
    });
    let state = fake.state();
    for i in 0..100u8 {
        assert_eq!(state.executed.iter().filter(|op| **op == [i]).count(), 1);
        assert!(state.executed.iter().filter(|op| **op == [i, 1]).count() <= 1);
    }
}

/// The tasks and the connections end with the last handle.
#[test]
fn dropping_the_client_closes_its_connections() {
    let fake = Fake::start(4, LinkMode::Tls);
    run(async {
        let client = AsyncClient::connect(fake.info.clone(), key(1), options()).await.unwrap();
        let other = client.clone();
        drop(client);
        assert_eq!(other.call(b"still").await.unwrap(), expected(b"still"));
        drop(other);
        let start = Instant::now();
        while fake.open_connections() > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "connections stay open");
            tokio::task::yield_now().await;
        }
    });
}
