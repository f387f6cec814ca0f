//! Who is served how much, in turns counted in a simulated world.
//!
//! The target works for a time on each command while there is an express queue: so each scene has
//! one, which is idle or has little to do.

use std::time::Duration;

use weft_nvme::feature::Arbitration;
use weft_target::config::{Config, QosClass, QosRule};

use crate::support::peer::enabled;
use crate::turns::Scene;

/// How long the target works on each command.
const WORK: Duration = Duration::from_micros(1);

const MS: Duration = Duration::from_millis(1);

fn of_port(port: u16, weight: u16) -> QosRule {
    QosRule {
        host: None,
        subsystem: None,
        port: Some(port),
        class: QosClass::Throughput,
        weight: Some(weight),
    }
}

/// The last port is that of a queue which is express and idle.
pub(crate) fn idle(port: u16) -> QosRule {
    QosRule { class: QosClass::Latency, weight: None, ..of_port(port, 1) }
}

/// Answers by queue in a time, after some time before it.
fn answers(scene: &mut Scene, depth: impl Fn(usize) -> usize, time: Duration) -> Vec<usize> {
    scene.set_work_time(WORK);
    scene.keep_depths(&depth, 1, time / 4);
    scene.keep_depths(&depth, 1, time)
}

/// Jain's index.
fn jain(parts: &[f64]) -> f64 {
    let squares: f64 = parts.iter().map(|one| one * one).sum();
    parts.iter().sum::<f64>().powi(2) / (squares * parts.len() as f64)
}

/// Three ports whose queues have the weights 1, 2 and 4, and one without a rule, whose host has
/// the default weight.
#[test]
fn tenants_are_served_by_weight() {
    let weights = [50.0, 100.0, 200.0, 100.0];
    let mut scene = Scene::at_ports(&[1, 2, 3, 4, 5], enabled(), |config: &mut Config| {
        config.express = false;
        config.qos_rules = vec![of_port(1, 50), of_port(2, 100), of_port(3, 200), idle(5)];
    });
    // Admin queues come first.
    let depth = |queue: usize| if queue < 9 { 120 } else { 0 };
    let answers = |scene: &mut Scene| self::answers(scene, depth, 100 * MS)[5..9].to_vec();
    let counts = answers(&mut scene);
    let parts = counts.iter().zip(weights).map(|(count, of)| *count as f64 / of);
    assert!(jain(&parts.collect::<Vec<_>>()) >= 0.99, "{counts:?}");
    // Without weights as much is served in all, and by weight no longer.
    scene.reload(|config| config.qos_rules = vec![idle(5)]);
    let alike = answers(&mut scene);
    assert!(alike[2] < 2 * alike[0], "{alike:?}");
    let (with, without) = (counts.iter().sum::<usize>(), alike.iter().sum::<usize>());
    assert!(with * 100 >= without * 97, "{counts:?}, {alike:?}");
}

/// Without any weight hosts have equal parts, however many queues they have.
#[test]
fn hosts_divide_a_group_however_many_queues_they_have() {
    let mut scene = Scene::of_hosts(&[1, 2, 2, 2, 2, 3], |config: &mut Config| {
        config.express = false;
        config.qos_rules = vec![idle(3)];
    });
    // Admin queues come first.
    let depth = |queue: usize| if (3..8).contains(&queue) { 120 } else { 0 };
    let answers = answers(&mut scene, depth, 100 * MS)[3..8].to_vec();
    let parts = [answers[0], answers[1..].iter().sum()].map(|part| part as f64);
    assert!(jain(&parts) >= 0.99, "{answers:?}");
}

/// A piece of a large request without data is executed in the turn of its tenant, however many such
/// requests another host has.
#[test]
fn large_requests_without_data_are_served_by_weight() {
    for weights in [[100, 100], [400, 100]] {
        let mut scene = Scene::of_hosts(&[1, 2, 2, 2, 2, 3], |config: &mut Config| {
            config.subsystems = crate::support::config(&["memory:64MiB"]).subsystems;
            config.express = false;
            config.qos_rules = vec![of_port(1, weights[0]), of_port(2, weights[1]), idle(3)];
        });
        // Admin queues come first.
        let depth = |queue: usize| if (3..8).contains(&queue) { 60 } else { 0 };
        scene.set_work_time(WORK);
        scene.keep_zeroes(depth, 256, 5 * MS);
        let answers = scene.keep_zeroes(depth, 256, 20 * MS)[3..8].to_vec();
        let counts = [answers[0], answers[1..].iter().sum()];
        let parts = [0, 1].map(|host| counts[host] as f64 / f64::from(weights[host]));
        assert!(counts[0] > 20 && jain(&parts) >= 0.98, "{weights:?}: {answers:?}");
    }
}

/// High, Medium and Low, by the feature Arbitration, which may change.
#[test]
fn priorities_divide_what_their_host_has() {
    let chosen = enabled().with_arbitration_mechanism(1);
    let mut scene =
        Scene::with_priorities(&[1, 1, 2, 2, 3, 3, 0], chosen, |config| config.express = true);
    let depth = |queue: usize| if queue < 7 { 120 } else { 1 };
    for (high, medium, low) in [(3, 1, 0), (0, 0, 0), (0, 1, 3)] {
        let arbitration = Arbitration(0)
            .with_high_priority_weight(high)
            .with_medium_priority_weight(medium)
            .with_low_priority_weight(low);
        scene.set_arbitration(arbitration);
        let answers = answers(&mut scene, depth, 100 * MS);
        let weights = [high, medium, low].map(|weight| f64::from(weight) + 1.0);
        let classes = answers[1..7].chunks(2).map(|pair| pair[0] + pair[1]);
        let parts: Vec<f64> = classes.zip(weights).map(|(count, of)| count as f64 / of).collect();
        // Time is divided, and what each connection takes of it in a turn beside its commands
        // weighs more where these are few.
        assert!(jain(&parts) >= 0.93, "{high}, {medium}, {low}: {answers:?}");
    }
}

/// 200 queues with one command at a time beside a deep one: with express queues neither it nor any
/// of them has less than seven tenths of what it has without. At most 64 of them are express at a
/// time, and they are served alike.
#[test]
fn many_that_pose_as_small_ones_leave_the_others_theirs() {
    let served = |is_on: bool| {
        let ports: Vec<u16> = std::iter::repeat_n(1, 201).chain([2]).collect();
        let mut scene = Scene::at_ports(&ports, enabled(), |config| {
            config.express = is_on;
            config.limits.io_queues = 256;
            config.qos_rules = vec![idle(2)];
        });
        // Without it three of them have 1.17 times what others have, on and on: their requests
        // always come at the same moment of a turn.
        scene.set_jitter(Duration::from_micros(10));
        // Two admin queues, the deep one, the small ones, and the one that is idle.
        let depth = |queue: usize| match queue {
            2 => 120,
            3..=202 => 1,
            _ => 0,
        };
        // Express queues take turns of 10 ms: each of 200 has some 13 of these.
        answers(&mut scene, depth, if is_on { 400 * MS } else { 100 * MS })
    };
    let (off, on) = (served(false), served(true));
    for queue in 2..=202 {
        assert!(on[queue] * 10 >= off[queue] * 4 * 7, "{}: {} of {}", queue, on[queue], off[queue]);
    }
    let small = || on[3..=202].iter().copied();
    let (most, least) = (small().max().expect("some"), small().min().expect("some"));
    assert!(most * 10 <= least * 11, "{least} to {most}");
}

/// Others have 120 commands at once for 1 ms in each 10, of 4 KiB or of 128 KiB: a command that
/// comes then is answered within the 60 µs that it may take on top of what it takes alone.
#[test]
fn bursts_of_others_are_not_in_the_p99() {
    let us = Duration::from_micros;
    for size in [1, 32] {
        let mut scene = Scene::at_ports(&[1, 2], enabled(), |config: &mut Config| {
            config.express = false;
            config.qos_rules = vec![idle(2)];
        });
        scene.set_work_time(Duration::from_nanos(500));
        scene.set_send_time(us(10));
        let times = scene.answer_times(2);
        let blocks = |queue: usize| if queue == 2 { size } else { 1 };
        for _ in 0..60 {
            scene.keep_loads(|queue| if queue == 2 { 120 } else { 1 }, blocks, MS);
            scene.keep_loads(|queue| usize::from(queue != 2), blocks, 9 * MS);
        }
        let mut times = times.borrow_mut();
        times.sort_unstable();
        let [alone, p99] = [50, 99].map(|percent| times[times.len() * percent / 100]);
        assert!(p99 <= alone + us(60), "{size}: {alone:?}, {p99:?} of {}", times.len());
    }
}
