"""Starts ceph-nvmeof, or does what Ceph's monitor does with it.

nvmeof.py daemon CONFIG             starts the daemon
nvmeof.py states ADDRESS NQN GROUP=STATE...
                                    sets access states, as the monitor's client does
"""

import runpy
import signal
import sys

import grpc
from control.cephutils import CephUtils
from control.proto import gateway_pb2 as messages
from control.proto.gateway_pb2_grpc import GatewayStub
from control.server import GatewayServer
from spdk.rpc import bdev, nvmf


def daemon(config):
    # The daemon ends its discovery service by SIGINT, which shells ignore for background jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Methods of Ceph's own SPDK, of which SPDK's client knows nothing.
    bdev.bdev_rbd_wait_for_latest_osdmap = lambda client, **params: client.call(
        "bdev_rbd_wait_for_latest_osdmap", params
    )
    nvmf.nvmf_subsystem_set_ns_visibility = lambda client, **params: client.call(
        "nvmf_subsystem_set_ns_visibility", params
    )
    # What the monitor of Ceph 19 and its client say, which Ceph 16 has not: there are two
    # groups, both of this gateway.
    GatewayServer._monitor_client_version = lambda self: "none"
    CephUtils.get_number_created_gateways = lambda self, *_, **__: [1, 2]
    CephUtils.get_gw_id_owner_ana_group = lambda self, *_: "gateway"
    sys.argv = ["control", "--config", config]
    runpy.run_module("control", run_name="__main__")


def states(address, nqn, *pairs):
    pairs = [pair.split("=") for pair in pairs]
    groups = [
        messages.ana_group_state(grp_id=int(group), state=messages.ana_state.Value(state))
        for group, state in pairs
    ]
    of_subsystem = messages.nqn_ana_states(nqn=nqn, states=groups)
    with grpc.insecure_channel(address) as channel:
        # In case of an error the call raises it.
        GatewayStub(channel).set_ana_state(messages.ana_info(states=[of_subsystem]))


if __name__ == "__main__":
    {"daemon": daemon, "states": states}[sys.argv[1]](*sys.argv[2:])
