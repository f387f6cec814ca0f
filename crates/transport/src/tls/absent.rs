//! In place of the TLS library, in builds without it.

use weft_nvmf::keys::TlsPsk;

use super::{FindPsk, TlsAcceptor, TlsConnector, TlsFault, TlsRecords, TlsSecrets, Wire};

/// There is none.
#[derive(Clone, Debug)]
enum Never {}

/// There is none, hence neither an acceptor nor a connector.
#[derive(Clone)]
pub(crate) struct Config(Never);

/// There is nothing to be done.
pub(crate) const fn initialize() {}

pub(crate) fn acceptor(_: FindPsk, _: TlsRecords) -> Result<Config, TlsFault> {
    Err(TlsFault::NotBuilt)
}

pub(crate) fn connector(_: &[TlsPsk], _: TlsRecords) -> Result<Config, TlsFault> {
    Err(TlsFault::NotBuilt)
}

/// There is none.
#[derive(Debug)]
pub(crate) struct Engine(Never);

impl Engine {
    pub(crate) fn accept(acceptor: &TlsAcceptor, records: TlsRecords) -> Result<Self, TlsFault> {
        match acceptor.config(records).0 {}
    }

    pub(crate) fn connect(connector: &TlsConnector) -> Result<Self, TlsFault> {
        match connector.config.0 {}
    }

    pub(crate) fn shake_hands(&mut self, _: Wire<'_, '_>) -> Result<bool, TlsFault> {
        match self.0 {}
    }

    pub(crate) fn open(
        &mut self,
        _: Wire<'_, '_>,
        _: &mut [u8],
    ) -> Result<Option<usize>, TlsFault> {
        match self.0 {}
    }

    pub(crate) fn seal(&mut self, _: Wire<'_, '_>, _: &[u8]) -> Result<(), TlsFault> {
        match self.0 {}
    }

    pub(crate) fn end(&mut self, _: Wire<'_, '_>) {
        match self.0 {}
    }

    pub(crate) fn renew_key(&mut self) -> Result<(), TlsFault> {
        match self.0 {}
    }

    pub(crate) fn release(&mut self) {
        match self.0 {}
    }

    pub(crate) fn suite(&self) -> Option<[u8; 2]> {
        match self.0 {}
    }

    pub(crate) fn hand_over(&mut self) -> Option<TlsSecrets> {
        match self.0 {}
    }

    pub(crate) fn identity(&self) -> Option<String> {
        match self.0 {}
    }
}
