//! What the kernel says about the process and its threads: limits, affinity, CPU time, clock.

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use rustix::process::{Resource, Rlimit};
use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// Raises this process's limit of open descriptors to the hard one; the limit that holds now.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return Ok(limit.current.unwrap_or(u64::MAX));
    }
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    )?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// How many descriptors this process may open.
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Lowers this process's limit of open descriptors (the hard limit stays).
pub fn set_descriptor_limit(limit: u64) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum })?;
    Ok(())
}

/// How many descriptors this process has open now. Reads a directory: not for every turn.
pub fn descriptors_in_use() -> io::Result<usize> {
    // The listing itself holds one open.
    Ok(std::fs::read_dir("/proc/self/fd")?.count().saturating_sub(1))
}

/// The name of a network interface of this machine by its number, which it may not have after the
/// next start of the machine.
pub fn interface_name(number: u32) -> Option<String> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").ok()?;
    rustix::net::netdevice::index_to_name(socket, number).ok()
}

/// Random bytes from the kernel, fit for keys.
///
/// # Errors
/// The kernel has none, which does not happen once it has been up for some seconds.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(filled) => rest = rest.get_mut(filled..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// From now on the process leaves no core dump, and no other process of its user can trace it or
/// read its memory.
///
/// # Errors
/// The kernel refuses it.
pub fn forbid_dumps() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// The memory that this process needs from now on is not made free by writing to block devices: it
/// serves one, which would wait for it.
///
/// # Errors
/// Only root may ask for that (CAP_SYS_RESOURCE).
pub fn forbid_writeback_for_memory() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

/// Has the calling thread run only when no other thread wants to.
///
/// # Errors
/// The kernel does not allow it.
pub fn lower_priority_of_current_thread() -> io::Result<()> {
    rustix::process::setpriority_process(None, 19)?;
    Ok(())
}

/// Lets the calling thread run on `cpu` only.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    confine_current_thread(&[cpu])
}

/// Lets the calling thread run on these processors only.
///
/// # Errors
/// It may run on none of them.
pub fn confine_current_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        if *cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such cpu"));
        }
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

/// The processors that the calling thread may run on.
///
/// # Errors
/// The kernel does not say, which happens with more processors than a set has.
pub fn cpus_of_current_thread() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// CPU time that the calling thread has used, in user and kernel mode.
pub fn thread_cpu_time() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime))
}

/// CPU time that the whole process has used, in user and kernel mode.
pub fn process_cpu_time() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))
}

/// Time since an origin that all threads of this machine share; never goes back.
pub fn monotonic_time() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

/// Time since 1970, as the machine's clock has it: it may be set, and go back.
pub fn real_time() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::Realtime))
}

/// Whether something keeps the machine's clock right; none: the kernel does not say.
#[must_use]
pub fn is_clock_synchronized() -> Option<bool> {
    let mut state = std::mem::MaybeUninit::<nix::libc::timex>::zeroed();
    // SAFETY: zero is a value of each of its fields, and one without modes changes nothing.
    let answer = unsafe { nix::libc::adjtimex(state.as_mut_ptr()) };
    (answer >= 0).then_some(answer != nix::libc::TIME_ERROR)
}

/// As [`monotonic_time`], but it goes on while the machine is suspended: the clock of leases.
pub fn lease_time() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

/// Has the kernel kill this process at a time, unless it is told of a later one before.
///
/// A process that may use a device only for a time cannot end its own use of it by looking at a
/// clock: it may be stopped between the look and the system call, and continued much later. One
/// that was killed is not continued. Dropping it does not unset it: its owner may have panicked.
#[derive(Debug)]
pub struct KillTimer(ManuallyDrop<Timer>);

// SAFETY: the number of a timer belongs to the process, not to a thread.
unsafe impl Send for KillTimer {}

impl KillTimer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        let event =
            SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
        Ok(Self(ManuallyDrop::new(Timer::new(ClockId::CLOCK_BOOTTIME, event)?)))
    }

    /// The process is killed at this [`lease_time`], and not at an earlier one; if it is over, at
    /// once.
    pub fn set(&mut self, at: Duration) -> io::Result<()> {
        // A time of 0 would unset it.
        let at = Expiration::OneShot(at.max(Duration::from_nanos(1)).into());
        Ok(self.0.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }

    /// The process is not killed.
    pub fn unset(&mut self) -> io::Result<()> {
        let never = Expiration::OneShot(Duration::ZERO.into());
        Ok(self.0.set(never, TimerSetTimeFlags::empty())?)
    }
}

fn duration(time: rustix::time::Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_process_is_killed_in_time_even_if_it_is_stopped() {
        const VARIABLE: &str = "WEFT_TEST_KILL_TIMER";
        if std::env::var_os(VARIABLE).is_some() {
            let mut timer = KillTimer::new().unwrap();
            timer.set(lease_time() + Duration::from_millis(1)).unwrap();
            timer.set(lease_time() + Duration::from_millis(400)).unwrap();
            let id = rustix::process::getpid();
            rustix::process::kill_process(id, rustix::process::Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_secs(20));
            return;
        }
        let name = "system::tests::a_process_is_killed_in_time_even_if_it_is_stopped";
        let begin = lease_time();
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        let own = own.args([name, "--exact"]).env(VARIABLE, "1").output().unwrap();
        assert_eq!(own.status.signal(), Some(9), "{own:?}");
        assert!(lease_time() - begin >= Duration::from_millis(400));
        let mut timer = KillTimer::new().unwrap();
        timer.set(lease_time() + Duration::from_millis(50)).unwrap();
        timer.unset().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }

    #[test]
    fn descriptors_are_counted() {
        let before = descriptors_in_use().unwrap();
        let files: Vec<_> =
            (0..50).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        // Other tests of this process open and close files of their own meanwhile.
        assert!(descriptors_in_use().unwrap() + 40 > before + files.len());
    }

    #[test]
    fn work_takes_cpu_time_and_time_passes() {
        let (cpu, time) = (thread_cpu_time(), monotonic_time());
        let mut sum = 0u64;
        while thread_cpu_time() == cpu {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(monotonic_time() > time);
        assert!(process_cpu_time() >= thread_cpu_time());
    }

    #[test]
    fn random_bytes_differ() {
        let (one, other): ([u8; 300], [u8; 300]) =
            (random_bytes().unwrap(), random_bytes().unwrap());
        assert_ne!(one, other);
        assert!(one.chunks(30).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    }

    #[test]
    fn dumps_are_forbidden() {
        forbid_dumps().unwrap();
        let behavior = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(behavior, rustix::process::DumpableBehavior::NotDumpable);
    }

    #[test]
    fn a_thread_is_pinned() {
        std::thread::spawn(|| {
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap();
            pin_current_thread(cpu).unwrap();
            assert_eq!(rustix::thread::sched_getcpu(), cpu);
            assert!(pin_current_thread(100_000).is_err());
        })
        .join()
        .unwrap();
    }
}
