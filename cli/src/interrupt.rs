//! Ctrl-C: a long command stops between two of its steps, and says how far it has come.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Whether a signal has asked this process to stop.
pub(crate) fn is_asked_for() -> bool {
    IS_ASKED_FOR.load(Ordering::Relaxed)
}

/// Input whose reads a signal ends. A reader behind it does not make them again, as it does after a
/// call that was merely interrupted.
pub(crate) struct Stops<R>(pub(crate) R);

impl<R: Read> Read for Stops<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = if is_asked_for() { Ok(0) } else { self.0.read(buffer) };
        // Also where it came between two reads.
        match is_asked_for() {
            true => Err(stopped()),
            false => read,
        }
    }
}

/// The error of what a signal has ended.
pub(crate) fn stopped() -> io::Error {
    io::Error::other("stopped by a signal")
}

#[cfg(unix)]
type Stdout = std::fs::File;
#[cfg(windows)]
type Stdout = io::Stdout;

/// Standard output. A signal, or the alarm behind it, ends a write that waits for the reader, and
/// each one after it. A buffer above makes a write again that was merely interrupted.
pub(crate) struct StandardOutput {
    to: Stdout,
    /// A signal has ended a write.
    pub(crate) is_over: bool,
}

impl StandardOutput {
    pub(crate) fn new() -> io::Result<StandardOutput> {
        // What the standard library has for it is such a buffer.
        #[cfg(unix)]
        let to = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned()?.into();
        #[cfg(windows)]
        let to = io::stdout();
        Ok(StandardOutput { to, is_over: false })
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_over {
            return Err(stopped());
        }
        let written = self.to.write(bytes);
        // It may have come before, or when the reader had taken a part.
        let is_whole = written.as_ref().is_ok_and(|written| *written == bytes.len());
        self.is_over = is_asked_for() && !is_whole;
        match written {
            Err(error) if self.is_over && error.kind() == io::ErrorKind::Interrupted => {
                Err(stopped())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(unix)]
extern "C" fn ask(_signal: libc::c_int) {
    IS_ASKED_FOR.store(true, Ordering::Relaxed);
    // The signal interrupts no call that begins after a look at the flag, and none of another
    // thread. So it comes again as an alarm, each second until the command ends.
    // SAFETY: `alarm` takes a number, and a handler may call it.
    unsafe { libc::alarm(1) };
}

/// From now on the first SIGINT or SIGTERM asks this process to stop; the second one ends it.
#[cfg(unix)]
pub(crate) fn on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM] {
        // SAFETY: the action is plain data that is made here. Its handler stores to an atomic and
        // sets an alarm. After it has run once, what is no alarm has its default action again.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ask as *const () as usize;
            action.sa_flags = if signal == libc::SIGALRM { 0 } else { libc::SA_RESETHAND };
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Whether this handler takes care of it. It takes care of the first one only, and the default
/// handler of those behind it.
#[cfg(windows)]
unsafe extern "system" fn ask(_kind: u32) -> windows_sys::core::BOOL {
    i32::from(!IS_ASKED_FOR.swap(true, Ordering::Relaxed))
}

/// From now on the first Ctrl-C or Ctrl-Break asks this process to stop; the second one ends it.
#[cfg(windows)]
pub(crate) fn on_signals() {
    // SAFETY: the handler runs on a thread of the system's own, and touches an atomic alone.
    unsafe { windows_sys::Win32::System::Console::SetConsoleCtrlHandler(Some(ask), 1) };
}
