//! The binding to the TLS library, s2n-tls.
//!
//! The library reads and writes by two callbacks. They work on a [`Wire`] on the stack of
//! the call in progress: its address is given to the connection before a call into the library and
//! taken back after it, so that the library has no pointer to it in between. This is the only
//! `unsafe` of TLS.

use std::ffi::{OsStr, c_int, c_void};
use std::fmt;
use std::sync::Once;
use std::task::{Poll, Waker};

use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture};
use s2n_tls::config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, Mode, PeerKeyUpdate, PskHmac, SerializationVersion};
use s2n_tls::error::{Error, ErrorType};
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;
use weft_nvmf::auth::{HashFunction, SecretBytes};
use weft_nvmf::keys::{TlsPsk, TrafficSecret};

use super::{FindPsk, TlsAcceptor, TlsConnector, TlsFault, TlsRecords, TlsSecrets, Wire, hello};

/// The longest identity: two NQNs and the digest of SHA-384, with what is between them.
const IDENTITY_BYTES_MAX: usize = 2 * 223 + 64 + 16;

pub(crate) type Config = config::Config;

/// TLS 1.3 alone, with the suites of AES-GCM and ChaCha20.
const POLICY: &str = "AWS-CRT-SDK-TLSv1.3";

/// TLS 1.3 alone, with AES-256-GCM, whose hash function is SHA-384: a server may choose any suite
/// that a host offers, and a PSK is good for those of its hash function only. The library has no
/// such policy of SHA-256, of which [`POLICY`] prefers the suites.
const POLICY_OF_SHA384: &str = "20250211";

/// The variable that names a file of CA certificates.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// Identities that are looked up for one host.
const IDENTITIES_MAX: usize = 16;

/// One connection.
pub(crate) struct Engine {
    connection: Connection,
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// Initializes the library. It loads the system's CA certificates for a configuration of its own,
/// which nobody uses here, from the file that a variable names, and has no other setting for that:
/// they are left out where the environment can be changed, which no other thread may read
/// meanwhile.
pub(crate) fn initialize() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let is_alone = std::fs::read_dir("/proc/self/task").is_ok_and(|all| all.count() == 1);
        if !is_alone {
            return s2n_tls::init::init();
        }
        let before = std::env::var_os(CERTIFICATES);
        // SAFETY: the process has one thread, which is here.
        #[allow(unsafe_code, reason = "this is the only thread")]
        unsafe {
            set_certificates(Some("/dev/null".as_ref()));
            s2n_tls::init::init();
            set_certificates(before.as_deref());
        }
    });
}

/// Names the file of certificates.
///
/// # Safety
/// No other thread may read or change the environment meanwhile.
#[allow(unsafe_code, reason = "threads share the environment")]
unsafe fn set_certificates(file: Option<&OsStr>) {
    // SAFETY: the caller's.
    unsafe {
        match file {
            Some(file) => std::env::set_var(CERTIFICATES, file),
            None => std::env::remove_var(CERTIFICATES),
        }
    }
}

/// The configuration of a target's connections.
pub(crate) fn acceptor(find: FindPsk, records: TlsRecords) -> Result<Config, TlsFault> {
    configuration(POLICY, records, |builder| {
        builder.set_client_hello_callback(ChoosePsk(find)).map(drop)
    })
}

/// The configuration of a host's connections, which offer these PSKs.
pub(crate) fn connector(psks: &[TlsPsk], records: TlsRecords) -> Result<Config, TlsFault> {
    let is_sha384 = !psks.is_empty() && psks.iter().all(|psk| psk.hash == HashFunction::Sha384);
    configuration(if is_sha384 { POLICY_OF_SHA384 } else { POLICY }, records, |_| Ok(()))
}

fn configuration(
    policy: &str,
    records: TlsRecords,
    add: impl FnOnce(&mut config::Builder) -> Result<(), Error>,
) -> Result<Config, TlsFault> {
    initialize();
    let build = || -> Result<Config, Error> {
        let mut builder = config::Builder::new();
        builder.with_system_certs(false)?;
        builder.set_security_policy(&Policy::from_version(policy)?)?;
        if records == TlsRecords::Kernel {
            builder.set_serialization_version(SerializationVersion::V1)?;
        }
        add(&mut builder)?;
        builder.build()
    };
    build().map_err(|error| TlsFault::Library(error.message()))
}

/// Gives a connection the PSKs that its host offers and that are known here.
struct ChoosePsk(FindPsk);

impl ClientHelloCallback for ChoosePsk {
    fn on_client_hello(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<std::pin::Pin<Box<dyn ConnectionFuture>>>, Error> {
        let message = connection.client_hello()?.raw_message()?;
        let mut known = false;
        for (identity, binder) in hello::offers(&message).take(IDENTITIES_MAX) {
            let identity = str::from_utf8(identity).ok();
            if let Some(psk) = identity.and_then(|identity| (self.0)(identity)) {
                if binder.is_some_and(|binder| binder.len() != psk.hash.length()) {
                    return Err(Error::application(Box::new(TlsFault::OtherHash)));
                }
                append(connection, &psk)?;
                known = true;
            }
        }
        if known { Ok(None) } else { Err(Error::application(Box::new(TlsFault::UnknownIdentity))) }
    }
}

fn append(connection: &mut Connection, psk: &TlsPsk) -> Result<(), Error> {
    let mut builder = Psk::builder()?;
    builder.set_identity(psk.identity.as_bytes())?;
    builder.set_secret(&psk.secret)?;
    builder.set_hmac(match psk.hash {
        HashFunction::Sha256 => PskHmac::SHA256,
        // No PSK has another.
        HashFunction::Sha384 | HashFunction::Sha512 => PskHmac::SHA384,
    })?;
    connection.append_psk(&builder.build()?)
}

impl Engine {
    /// A target's connection.
    pub(crate) fn accept(acceptor: &TlsAcceptor, records: TlsRecords) -> Result<Self, TlsFault> {
        Self::new(Connection::new_server(), acceptor.config(records), &[])
    }

    /// A host's connection.
    pub(crate) fn connect(connector: &TlsConnector) -> Result<Self, TlsFault> {
        Self::new(Connection::new_client(), &connector.config, &connector.psks)
    }

    fn new(mut connection: Connection, config: &Config, psks: &[TlsPsk]) -> Result<Self, TlsFault> {
        let prepare = |connection: &mut Connection| -> Result<(), Error> {
            connection.set_config(config.clone())?;
            // Otherwise a failure would have the library sleep for many seconds. Who fails learns
            // nothing from the time: the connection is closed.
            connection.set_blinding(Blinding::SelfService)?;
            connection.prefer_throughput()?;
            // The library has tasks for callbacks, of which none waits here.
            connection.set_waker(Some(Waker::noop()))?;
            connection.set_receive_callback(Some(receive))?;
            connection.set_send_callback(Some(send))?;
            psks.iter().try_for_each(|psk| append(connection, psk))
        };
        match prepare(&mut connection) {
            Ok(()) => Ok(Self { connection }),
            Err(error) => Err(TlsFault::Library(error.message())),
        }
    }

    /// Continues the handshake. Returns whether it is complete.
    pub(crate) fn shake_hands(&mut self, wire: Wire<'_, '_>) -> Result<bool, TlsFault> {
        self.with(wire, |connection| connection.poll_negotiate().map_ok(drop)).map(|e| e.is_some())
    }

    /// Decrypts into `place`, which is not empty. Returns how many bytes there are, 0 if the peer
    /// has ended the connection; none: more has to be received first.
    pub(crate) fn open(
        &mut self,
        wire: Wire<'_, '_>,
        place: &mut [u8],
    ) -> Result<Option<usize>, TlsFault> {
        self.with(wire, |connection| connection.poll_recv(place))
    }

    /// Encrypts all of `plain`.
    pub(crate) fn seal(&mut self, wire: Wire<'_, '_>, plain: &[u8]) -> Result<(), TlsFault> {
        let (received, outgoing) = wire;
        let mut rest = plain;
        while !rest.is_empty() {
            let wire = (&mut *received, &mut *outgoing);
            let sent = self.with(wire, |connection| connection.poll_send(rest))?;
            // The callback takes everything, so that the library never waits.
            let sent = sent.ok_or(TlsFault::Library("a record was not taken"))?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn end(&mut self, wire: Wire<'_, '_>) {
        // The peer finds out without it as well.
        let _ = self.with(wire, |connection| connection.poll_shutdown_send().map_ok(drop));
    }

    /// Has the next record begin with a new sending key.
    pub(crate) fn renew_key(&mut self) -> Result<(), TlsFault> {
        let renewed = self.connection.request_key_update(PeerKeyUpdate::KeyUpdateNotRequested);
        renewed.map(drop).map_err(|error| TlsFault::Library(error.message()))
    }

    /// Frees the memory for records, if none is under way.
    pub(crate) fn release(&mut self) {
        // It fails while a record is incomplete.
        let _ = self.connection.release_buffers();
    }

    /// The number of the cipher suite that the handshake has chosen, of those that are allowed.
    pub(crate) fn suite(&self) -> Option<[u8; 2]> {
        match self.connection.cipher_suite().ok()? {
            "TLS_AES_128_GCM_SHA256" => Some([0x13, 1]),
            "TLS_AES_256_GCM_SHA384" => Some([0x13, 2]),
            "TLS_CHACHA20_POLY1305_SHA256" => Some([0x13, 3]),
            _ => None,
        }
    }

    /// Takes what the connection goes on with elsewhere; the library does nothing more for it.
    /// None while part of a record is here: then it stays.
    pub(crate) fn hand_over(&mut self) -> Option<TlsSecrets> {
        let identity = self.identity();
        let mut bytes = vec![0; self.connection.serialization_length().ok()?];
        let serialized = self.connection.serialize(&mut bytes);
        let bytes = SecretBytes::from(bytes);
        serialized.ok()?;
        // Eight bytes of its version, the protocol's, and as below; all numbers are big-endian.
        let suite = *bytes.get(10..)?.first_chunk()?;
        let numbers = [*bytes.get(12..)?.first_chunk()?, *bytes.get(20..)?.first_chunk()?];
        let secrets = bytes.get(30..)?;
        let mut secrets = secrets.chunks_exact(secrets.len() / 3);
        let mut direction = |number| {
            let secret = SecretBytes::from(secrets.next()?.to_vec());
            Some((TrafficSecret::new(secret)?, number))
        };
        let (of_client, of_server) = (direction(numbers[0])?, direction(numbers[1])?);
        let (sending, receiving) = match self.connection.mode() {
            Mode::Client => (of_client, of_server),
            Mode::Server => (of_server, of_client),
        };
        Some(TlsSecrets { suite, sending, receiving, identity })
    }

    /// The identity of the PSK that the handshake has used.
    pub(crate) fn identity(&self) -> Option<String> {
        let length = self.connection.negotiated_psk_identity_length().ok()?;
        let mut identity = vec![0; length.min(IDENTITY_BYTES_MAX)];
        self.connection.negotiated_psk_identity(&mut identity).ok()?;
        String::from_utf8(identity).ok()
    }

    /// Calls the library with the callbacks at this wire; none: it waits for more.
    fn with<T>(
        &mut self,
        mut wire: Wire<'_, '_>,
        call: impl FnOnce(&mut Connection) -> Poll<Result<T, Error>>,
    ) -> Result<Option<T>, TlsFault> {
        let address: *mut Wire<'_, '_> = &mut wire;
        self.set_wire(address.cast())?;
        let result = call(&mut self.connection);
        self.set_wire(std::ptr::null_mut())?;
        match result {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(value)) => Ok(Some(value)),
            Poll::Ready(Err(error)) => Err(self.fault(&error)),
        }
    }

    fn set_wire(&mut self, address: *mut c_void) -> Result<(), TlsFault> {
        // SAFETY: the library only passes the address to the callbacks, during calls; it is that of
        // the wire of the call in progress, or null, which the callbacks take as no wire.
        #[allow(unsafe_code, reason = "the address is for the callbacks alone")]
        let set = unsafe {
            self.connection
                .set_receive_context(address)
                .and_then(|connection| connection.set_send_context(address))
        };
        set.map(drop).map_err(|error| TlsFault::Library(error.message()))
    }

    fn fault(&self, error: &Error) -> TlsFault {
        let own = error.application_error().and_then(|own| own.downcast_ref::<TlsFault>());
        match (own, error.kind(), self.connection.alert()) {
            (Some(own), ..) => *own,
            (None, ErrorType::Alert, Some(alert)) => TlsFault::Alert(alert),
            _ => TlsFault::Library(error.message()),
        }
    }
}

/// The library asks for received bytes.
#[allow(unsafe_code, reason = "called by the library")]
unsafe extern "C" fn receive(context: *mut c_void, place: *mut u8, length: u32) -> c_int {
    // SAFETY: `Engine::with` has set the context to null or to a wire that it owns for the whole
    // call, and of which nobody else has a reference meanwhile.
    let Some((received, _)) = (unsafe { context.cast::<Wire<'_, '_>>().as_mut() }) else {
        return blocked();
    };
    let most = usize::try_from(length).unwrap_or(usize::MAX).min(received.len());
    let (taken, rest) = received.split_at(most);
    if taken.is_empty() {
        return blocked();
    }
    // SAFETY: the library has `length` bytes there, of which it has no reference during the call;
    // `taken` is no longer than that and lies in other memory.
    unsafe { place.copy_from_nonoverlapping(taken.as_ptr(), taken.len()) };
    **received = rest;
    c_int::try_from(taken.len()).unwrap_or(c_int::MAX)
}

/// The library has bytes to be sent.
#[allow(unsafe_code, reason = "called by the library")]
unsafe extern "C" fn send(context: *mut c_void, bytes: *const u8, length: u32) -> c_int {
    // SAFETY: as in `receive`.
    let Some((_, outgoing)) = (unsafe { context.cast::<Wire<'_, '_>>().as_mut() }) else {
        return blocked();
    };
    let (Ok(taken), Ok(bytes_len)) = (c_int::try_from(length), usize::try_from(length)) else {
        return blocked();
    };
    // SAFETY: the library has `length` initialized bytes there, which do not change meanwhile.
    outgoing.bytes(unsafe { std::slice::from_raw_parts(bytes, bytes_len) });
    taken
}

/// The answer of a callback that can do nothing now.
fn blocked() -> c_int {
    errno::set_errno(errno::Errno(EWOULDBLOCK));
    -1
}

const EWOULDBLOCK: i32 = rustix::io::Errno::WOULDBLOCK.raw_os_error();
