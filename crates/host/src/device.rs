//! A remote namespace as a block device.

use std::sync::Arc;

use weft_backend::{
    BlockDevice, Capabilities, DeviceFactory, Failure, Geometry, OpenError, Request,
    RequestCompletion, ResizeError,
};
use weft_nvme::identify::DeallocateFeatures;
use weft_nvmf::host::{ControllerInfo, ControllerSnapshot, NamespaceInfo};
use weft_reactor::{Owner, Reactor};

use crate::error::Error;
use crate::queue::QueuePair;
use crate::shared::Shared;

/// A namespace of a connected controller: opens a [`BlockDevice`] on any reactor, each with an
/// I/O queue of its own (so that at most [`crate::Options::nr_io_queues`] are open at a time).
///
/// A device connects its queue by itself; requests that come before wait. It reconnects
/// as the options say, and fails with [`Failure::Gone`] once the namespace is not the one any more
/// for which the factory was made.
#[derive(Debug, Clone)]
pub struct NamespaceFactory {
    shared: Arc<Shared>,
    namespace: Arc<NamespaceInfo>,
}

impl NamespaceFactory {
    pub(crate) fn new(shared: &Arc<Shared>, nsid: u32) -> Result<Self, Error> {
        let snapshot = shared.snapshot().ok_or(Error::Stopped)?;
        let namespace = snapshot.namespaces.get(&nsid).ok_or(Error::NoNamespace(nsid))?;
        check_usable(namespace)?;
        Ok(Self { shared: Arc::clone(shared), namespace: Arc::clone(namespace) })
    }

    /// The namespace when the factory was made.
    #[must_use]
    pub const fn namespace(&self) -> &Arc<NamespaceInfo> {
        &self.namespace
    }

    fn current(&self) -> Option<(Arc<ControllerSnapshot>, Arc<NamespaceInfo>)> {
        let snapshot = self.shared.snapshot()?;
        let namespace = snapshot.namespaces.get(&self.namespace.nsid)?;
        let namespace = Arc::clone(namespace);
        namespace.is_same(&self.namespace).then_some((snapshot, namespace))
    }
}

/// Whether this host can read and write the namespace.
pub(crate) fn check_usable(namespace: &NamespaceInfo) -> Result<(), Error> {
    if namespace.metadata_bytes == 0 {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "namespace {} has {} bytes of metadata with each block, which this host does not carry",
        namespace.nsid, namespace.metadata_bytes
    )))
}

impl DeviceFactory for NamespaceFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let Some((snapshot, namespace)) = self.current() else {
            let what = format!("namespace {} is gone", self.namespace.nsid);
            return Err(OpenError::Invalid(what));
        };
        let queue = QueuePair::open(&self.shared, reactor, owner).map_err(OpenError::Invalid)?;
        let geometry = geometry(&snapshot.controller, &namespace);
        Ok(Box::new(NamespaceDevice { queue, snapshot, namespace, geometry, gone: false }))
    }

    fn geometry(&self) -> Geometry {
        let snapshot = self.current();
        match &snapshot {
            Some((snapshot, namespace)) => geometry(&snapshot.controller, namespace),
            None => Geometry::new(self.namespace.bytes(), self.namespace.block_bytes),
        }
    }

    /// Whether its contents survive is decided by the target; its identity shows it.
    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        identity(&self.namespace, &self.shared)
    }

    fn resize(&self, _bytes: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }
}

/// A text that names this namespace and no other.
pub(crate) fn identity(namespace: &NamespaceInfo, shared: &Shared) -> String {
    let identity = &namespace.identity;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if let Some(uuid) = identity.uuid {
        return format!("uuid.{}", uuid::Uuid::from_bytes(uuid));
    }
    if let Some(nguid) = identity.nguid {
        return format!("nguid.{}", hex(&nguid));
    }
    if let Some(eui64) = identity.eui64 {
        return format!("eui.{}", hex(&eui64));
    }
    format!("{}?nsid={}", shared.config.subsystem, namespace.nsid)
}

#[derive(Debug)]
struct NamespaceDevice {
    queue: QueuePair,
    snapshot: Arc<ControllerSnapshot>,
    namespace: Arc<NamespaceInfo>,
    geometry: Geometry,
    gone: bool,
}

impl NamespaceDevice {
    /// Takes over the current state of the namespace.
    fn update_namespace(&mut self) {
        let Some(snapshot) = self.queue.snapshot() else { return };
        if Arc::ptr_eq(snapshot, &self.snapshot) {
            return;
        }
        self.snapshot = Arc::clone(snapshot);
        match snapshot.namespaces.get(&self.namespace.nsid) {
            Some(namespace) if namespace.is_same(&self.namespace) && !self.gone => {
                self.geometry = geometry(&snapshot.controller, namespace);
                self.namespace = Arc::clone(namespace);
            }
            _ => self.gone = true,
        }
    }
}

impl BlockDevice for NamespaceDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, _reactor: &mut Reactor, request: Request) {
        let checked =
            if self.gone { Err(Failure::Gone) } else { request.operation.check(&self.geometry) };
        match checked {
            Ok(()) => self.queue.submit(&self.namespace, request),
            Err(failure) => self.queue.refuse(request, failure),
        }
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        self.queue.handle(reactor, completion);
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        self.queue.flush(reactor);
        self.update_namespace();
    }

    fn set_express(&mut self, reactor: &mut Reactor, is_express: bool) {
        self.queue.set_express(reactor, is_express);
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.queue.poll_completion()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.queue.close(reactor);
    }
}

/// The geometry of a namespace as a block device.
pub(crate) fn geometry(controller: &ControllerInfo, namespace: &NamespaceInfo) -> Geometry {
    let identify = &*namespace.identify;
    let can = controller.identify.optional_nvm_commands();
    // Both commands of a fused pair are on the queue at the same time, and one of its entries is
    // never used.
    let fused =
        controller.identify.fused_operations().compare_and_write() && controller.queue_entries > 2;
    let count = |value_0s_based: u16| u32::from(value_0s_based) + 1;
    let own_units = identify.features.atomic_units();
    let unit = |own: u16, of_controller: u16| {
        count(if own_units && own != 0 { own } else { of_controller })
    };
    let hints = identify.features.optimal_performance() != 0;
    let hint = |value_0s_based: u16| if hints { count(value_0s_based) } else { 0 };
    let capabilities = Capabilities {
        read_only: namespace.write_protected,
        volatile_cache: controller.identify.volatile_write_cache.present(),
        discard: can.dataset_management(),
        discard_reads_zeroes: identify.deallocate_features.read_behavior()
            == DeallocateFeatures::READS_ZEROS,
        write_zeroes: can.write_zeroes(),
        durable_write: true,
        compare_and_write: fused,
        write_uncorrectable: can.write_uncorrectable(),
        rotational: false,
    };
    Geometry {
        atomic_blocks: unit(
            identify.atomic_write_unit_normal_0s_based.get(),
            controller.identify.atomic_write_unit_normal_0s_based.get(),
        ),
        compare_and_write_blocks: unit(
            identify.atomic_compare_and_write_unit_0s_based.get(),
            controller.identify.atomic_compare_and_write_unit_0s_based.get(),
        ),
        preferred_blocks: hint(identify.preferred_write_granularity_0s_based.get()),
        optimal_blocks: hint(identify.optimal_write_size_0s_based.get()),
        discard_granularity_blocks: hint(identify.preferred_deallocate_granularity_0s_based.get()),
        capabilities,
        ..Geometry::new(namespace.bytes(), namespace.block_bytes)
    }
}
