//! Devices around another one: a delay, faults, marks of unreadable blocks.

use std::sync::Arc;
use std::{fmt, io};

use weft_reactor::{Owner, Reactor};

use crate::storage::Storage;
use crate::{BlockDevice, DeviceFactory, Geometry, OpenError, ResizeCallback, ResizeError};

/// The factory of a device around another one, as which it answers but for what it says itself.
pub(crate) trait Wrapper: fmt::Debug + Send + Sync {
    /// The other one.
    fn inner(&self) -> &dyn DeviceFactory;

    /// Opens both.
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError>;

    /// Its own geometry, from that of the other one.
    fn geometry_of(&self, inner: Geometry) -> Geometry {
        inner
    }

    /// As [`DeviceFactory::sync`].
    fn sync(&self) -> io::Result<()> {
        self.inner().sync()
    }

    /// As [`DeviceFactory::has_lost_writes`].
    fn has_lost_writes(&self) -> bool {
        self.inner().has_lost_writes()
    }
}

impl<T: Wrapper> DeviceFactory for T {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        Wrapper::open(self, reactor, owner)
    }

    fn geometry(&self) -> Geometry {
        self.geometry_of(self.inner().geometry())
    }

    fn survives_restart(&self) -> bool {
        self.inner().survives_restart()
    }

    fn identity(&self) -> String {
        self.inner().identity()
    }

    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        self.inner().resize(bytes)
    }

    fn refresh(&self) -> io::Result<Geometry> {
        self.inner().refresh().map(|inner| self.geometry_of(inner))
    }

    fn when_resized(&self, resized: ResizeCallback) {
        self.inner().when_resized(resized);
    }

    fn sync(&self) -> io::Result<()> {
        Wrapper::sync(self)
    }

    fn has_lost_writes(&self) -> bool {
        Wrapper::has_lost_writes(self)
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        self.inner().storage()
    }

    fn detached(&self) -> Option<String> {
        self.inner().detached()
    }

    fn layers(&self) -> u8 {
        self.inner().layers() + 1
    }
}
