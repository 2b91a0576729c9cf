"""Structs of nvml.h that are filled over and over; made here once, without a method of their own.

The tests compare size and offsets with NVIDIA's own binding.
"""

from __future__ import annotations

from ctypes import (
    Structure,
    Union,
    c_char,
    c_double,
    c_int,
    c_longlong,
    c_uint,
    c_ulong,
    c_ulonglong,
    c_ushort,
    c_void_p,
)

#: more than any driver so far has (333, 477): only as many as `count` says are looked at
GPM_METRICS_MAX = 512


class Utilization(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class Memory(Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class MemoryV2(Structure):
    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class Bar1Memory(Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class PciInfo(Structure):
    _fields_ = [
        ("bus_id_legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("device_id", c_uint),
        ("subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    ]


class DeviceAttributes(Structure):
    _fields_ = [
        ("multiprocessors", c_uint),
        ("copy_engines", c_uint),
        ("decoders", c_uint),
        ("encoders", c_uint),
        ("jpeg_engines", c_uint),
        ("ofa_engines", c_uint),
        ("gpu_slices", c_uint),
        ("compute_slices", c_uint),
        ("memory_mib", c_ulonglong),
    ]


class AccountingStats(Structure):
    _fields_ = [
        ("gpu_percent", c_uint),
        ("memory_percent", c_uint),
        ("max_memory_bytes", c_ulonglong),
        ("time_ms", c_ulonglong),
        ("start_us", c_ulonglong),
        ("running", c_uint),
        ("reserved", c_uint * 5),
    ]


class Value(Union):
    """nvmlValue_t; the members in the order of nvmlValueType_t."""

    _fields_ = [
        ("double", c_double),
        ("uint", c_uint),
        ("ulong", c_ulong),
        ("ulonglong", c_ulonglong),
        ("longlong", c_longlong),
        ("int", c_int),
        ("ushort", c_ushort),
    ]


#: nvmlValueType_t -> member of Value
VALUE_MEMBERS = ("double", "uint", "ulong", "ulonglong", "longlong", "int", "ushort")


class FieldValue(Structure):
    _fields_ = [
        ("field_id", c_uint),
        ("scope_id", c_uint),
        ("time_us", c_longlong),
        ("latency_us", c_longlong),
        ("value_type", c_uint),
        ("code", c_uint),
        ("value", Value),
    ]


class GpmSupport(Structure):
    _fields_ = [("version", c_uint), ("supported", c_uint)]


class GpmMetric(Structure):
    _fields_ = [
        ("metric_id", c_uint),
        ("code", c_uint),
        ("value", c_double),
        ("info", c_void_p * 3),  # short name, long name, unit
    ]


class GpmMetrics(Structure):
    _fields_ = [
        ("version", c_uint),
        ("count", c_uint),
        ("sample1", c_void_p),
        ("sample2", c_void_p),
        ("metrics", GpmMetric * GPM_METRICS_MAX),
    ]


class EventData(Structure):
    _fields_ = [
        ("device", c_void_p),
        ("kind", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]
