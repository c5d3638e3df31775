//! Names the ioctls that user space makes on the device files of NVIDIA's kernel modules.
//!
//! The numbers are those of the open kernel modules (`nv_escape.h`, `nv-ioctl-numbers.h`, `uvm_ioctl.h`). `nvidiactl`
//! and the GPUs share one set, distinguished by the low byte. UVM's are plain numbers, without the usual fields for
//! size and direction.

mod names;
mod rm;

use std::borrow::Cow;

use names::{Names, name};

pub use rm::{rm_class, rm_control, rm_number};

/// The offset of the command in the parameters of `NV_ESC_RM_CONTROL` (`NVOS54_PARAMETERS`), for [`rm_control`].
pub const RM_CONTROL_COMMAND: usize = 8;

/// The offset of the class in the parameters of `NV_ESC_RM_ALLOC` (`NVOS21_PARAMETERS`, `NVOS64_PARAMETERS`), for
/// [`rm_class`].
pub const RM_ALLOC_CLASS: usize = 12;

/// The name of all requests and devices beyond the limit of those that are counted separately.
pub const OTHERS: &str = "[others]";

/// A device file of NVIDIA's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// `nvidiactl`.
    Control,
    /// `nvidia0`, `nvidia1` and so on.
    Gpu(u32),
    /// `nvidia-uvm`.
    Uvm,
    /// `nvidia-uvm-tools`.
    UvmTools,
    /// `nvidia-modeset`.
    Modeset,
    /// `nvidia-caps/nvidia-cap*` and the IMEX channels.
    Caps,
    /// `nvidia-nvswitch*`.
    Nvswitch,
    /// Any other `nvidia*`, such as `nvidia-nvlink`.
    Other,
}

impl Device {
    /// Returns the device of this file, in any directory. `None` if the name is not NVIDIA's.
    pub fn from_path(path: &str) -> Option<Device> {
        let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
        if directory.ends_with("nvidia-caps") || directory.ends_with("nvidia-caps-imex-channels") {
            return Some(Device::Caps);
        }
        let rest = file.strip_prefix("nvidia")?;
        Some(match rest {
            "ctl" => Device::Control,
            "-uvm" => Device::Uvm,
            "-uvm-tools" => Device::UvmTools,
            "-modeset" => Device::Modeset,
            _ if rest.starts_with("-cap") => Device::Caps,
            _ if rest.starts_with("-nvswitch") => Device::Nvswitch,
            _ if rest.starts_with('-') => Device::Other,
            _ => Device::Gpu(rest.bytes().all(|byte| byte.is_ascii_digit()).then(|| rest.parse().ok()).flatten()?),
        })
    }
}

/// Returns the name of an ioctl request, or its number if it has none.
pub fn ioctl(device: Device, request: u32) -> Cow<'static, str> {
    let number = request & 0xff;
    match device {
        Device::Control | Device::Gpu(_) if kind(request) == b'F' => {
            named(ESCAPES, number).unwrap_or_else(|| format!("NV_ESC {number:#x}").into())
        }
        Device::Uvm | Device::UvmTools => named(UVM, request).unwrap_or_else(|| format!("UVM {request:#x}").into()),
        Device::Modeset if kind(request) == b'm' && number == 0 => "NVKMS_IOCTL_CMD".into(),
        _ => format!("ioctl {request:#x}").into(),
    }
}

/// Returns the letter with which a driver marks its requests.
fn kind(request: u32) -> u8 {
    (request >> 8) as u8
}

fn named(table: Names, number: u32) -> Option<Cow<'static, str>> {
    name(table, number).map(Cow::Borrowed)
}

const ESCAPES: Names = &[
    (0x27, "NV_ESC_RM_ALLOC_MEMORY"),
    (0x28, "NV_ESC_RM_ALLOC_OBJECT"),
    (0x29, "NV_ESC_RM_FREE"),
    (0x2a, "NV_ESC_RM_CONTROL"),
    (0x2b, "NV_ESC_RM_ALLOC"),
    (0x32, "NV_ESC_RM_CONFIG_GET"),
    (0x33, "NV_ESC_RM_CONFIG_SET"),
    (0x34, "NV_ESC_RM_DUP_OBJECT"),
    (0x35, "NV_ESC_RM_SHARE"),
    (0x37, "NV_ESC_RM_CONFIG_GET_EX"),
    (0x38, "NV_ESC_RM_CONFIG_SET_EX"),
    (0x39, "NV_ESC_RM_I2C_ACCESS"),
    (0x41, "NV_ESC_RM_IDLE_CHANNELS"),
    (0x4a, "NV_ESC_RM_VID_HEAP_CONTROL"),
    (0x4d, "NV_ESC_RM_ACCESS_REGISTRY"),
    (0x4e, "NV_ESC_RM_MAP_MEMORY"),
    (0x4f, "NV_ESC_RM_UNMAP_MEMORY"),
    (0x52, "NV_ESC_RM_GET_EVENT_DATA"),
    (0x54, "NV_ESC_RM_ALLOC_CONTEXT_DMA2"),
    (0x56, "NV_ESC_RM_ADD_VBLANK_CALLBACK"),
    (0x57, "NV_ESC_RM_MAP_MEMORY_DMA"),
    (0x58, "NV_ESC_RM_UNMAP_MEMORY_DMA"),
    (0x59, "NV_ESC_RM_BIND_CONTEXT_DMA"),
    (0x5c, "NV_ESC_RM_EXPORT_OBJECT_TO_FD"),
    (0x5d, "NV_ESC_RM_IMPORT_OBJECT_FROM_FD"),
    (0x5e, "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO"),
    (0x5f, "NV_ESC_RM_LOCKLESS_DIAGNOSTIC"),
    (200, "NV_ESC_CARD_INFO"),
    (201, "NV_ESC_REGISTER_FD"),
    (206, "NV_ESC_ALLOC_OS_EVENT"),
    (207, "NV_ESC_FREE_OS_EVENT"),
    (209, "NV_ESC_STATUS_CODE"),
    (210, "NV_ESC_CHECK_VERSION_STR"),
    (211, "NV_ESC_IOCTL_XFER_CMD"),
    (212, "NV_ESC_ATTACH_GPUS_TO_FD"),
    (213, "NV_ESC_QUERY_DEVICE_INTR"),
    (214, "NV_ESC_SYS_PARAMS"),
    (215, "NV_ESC_NUMA_INFO"),
    (216, "NV_ESC_SET_NUMA_STATUS"),
    (217, "NV_ESC_EXPORT_TO_DMABUF_FD"),
    (218, "NV_ESC_WAIT_OPEN_COMPLETE"),
];

const UVM: Names = &[
    (1, "UVM_RESERVE_VA"),
    (2, "UVM_RELEASE_VA"),
    (3, "UVM_REGION_COMMIT"),
    (4, "UVM_REGION_DECOMMIT"),
    (5, "UVM_REGION_SET_STREAM"),
    (6, "UVM_SET_STREAM_RUNNING"),
    (7, "UVM_SET_STREAM_STOPPED"),
    (9, "UVM_RUN_TEST"),
    (10, "UVM_ADD_SESSION"),
    (11, "UVM_REMOVE_SESSION"),
    (12, "UVM_ENABLE_COUNTERS"),
    (13, "UVM_MAP_COUNTER"),
    (14, "UVM_CREATE_EVENT_QUEUE"),
    (15, "UVM_REMOVE_EVENT_QUEUE"),
    (16, "UVM_MAP_EVENT_QUEUE"),
    (17, "UVM_EVENT_CTRL"),
    (18, "UVM_REGISTER_MPS_SERVER"),
    (19, "UVM_REGISTER_MPS_CLIENT"),
    (20, "UVM_GET_GPU_UUID_TABLE"),
    (23, "UVM_CREATE_RANGE_GROUP"),
    (24, "UVM_DESTROY_RANGE_GROUP"),
    (25, "UVM_REGISTER_GPU_VASPACE"),
    (26, "UVM_UNREGISTER_GPU_VASPACE"),
    (27, "UVM_REGISTER_CHANNEL"),
    (28, "UVM_UNREGISTER_CHANNEL"),
    (29, "UVM_ENABLE_PEER_ACCESS"),
    (30, "UVM_DISABLE_PEER_ACCESS"),
    (31, "UVM_SET_RANGE_GROUP"),
    (33, "UVM_MAP_EXTERNAL_ALLOCATION"),
    (34, "UVM_FREE"),
    (35, "UVM_MEM_MAP"),
    (36, "UVM_DEBUG_ACCESS_MEMORY"),
    (37, "UVM_REGISTER_GPU"),
    (38, "UVM_UNREGISTER_GPU"),
    (39, "UVM_PAGEABLE_MEM_ACCESS"),
    (40, "UVM_PREVENT_MIGRATION_RANGE_GROUPS"),
    (41, "UVM_ALLOW_MIGRATION_RANGE_GROUPS"),
    (42, "UVM_SET_PREFERRED_LOCATION"),
    (43, "UVM_UNSET_PREFERRED_LOCATION"),
    (44, "UVM_ENABLE_READ_DUPLICATION"),
    (45, "UVM_DISABLE_READ_DUPLICATION"),
    (46, "UVM_SET_ACCESSED_BY"),
    (47, "UVM_UNSET_ACCESSED_BY"),
    (51, "UVM_MIGRATE"),
    (53, "UVM_MIGRATE_RANGE_GROUP"),
    (54, "UVM_ENABLE_SYSTEM_WIDE_ATOMICS"),
    (55, "UVM_DISABLE_SYSTEM_WIDE_ATOMICS"),
    (56, "UVM_TOOLS_INIT_EVENT_TRACKER"),
    (57, "UVM_TOOLS_SET_NOTIFICATION_THRESHOLD"),
    (58, "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS"),
    (59, "UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS"),
    (60, "UVM_TOOLS_ENABLE_COUNTERS"),
    (61, "UVM_TOOLS_DISABLE_COUNTERS"),
    (62, "UVM_TOOLS_READ_PROCESS_MEMORY"),
    (63, "UVM_TOOLS_WRITE_PROCESS_MEMORY"),
    (64, "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE"),
    (65, "UVM_MAP_DYNAMIC_PARALLELISM_REGION"),
    (66, "UVM_UNMAP_EXTERNAL"),
    (67, "UVM_TOOLS_FLUSH_EVENTS"),
    (68, "UVM_ALLOC_SEMAPHORE_POOL"),
    (69, "UVM_CLEAN_UP_ZOMBIE_RESOURCES"),
    (70, "UVM_PAGEABLE_MEM_ACCESS_ON_GPU"),
    (71, "UVM_POPULATE_PAGEABLE"),
    (72, "UVM_VALIDATE_VA_RANGE"),
    (73, "UVM_CREATE_EXTERNAL_RANGE"),
    (74, "UVM_MAP_EXTERNAL_SPARSE"),
    (75, "UVM_MM_INITIALIZE"),
    (76, "UVM_TOOLS_INIT_EVENT_TRACKER_V2"),
    (77, "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_V2"),
    (78, "UVM_ALLOC_DEVICE_P2P"),
    (79, "UVM_CLEAR_ALL_ACCESS_COUNTERS"),
    (80, "UVM_DISCARD"),
    (2047, "UVM_IS_8_SUPPORTED"),
    (0x3000_0001, "UVM_INITIALIZE"),
    (0x3000_0002, "UVM_DEINITIALIZE"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the tables are sorted for binary search and have no duplicate numbers.
    #[test]
    fn numbers_ascend() {
        for table in [ESCAPES, UVM, rm::CLASSES, rm::CONTROLS] {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0));
        }
    }

    /// Check that a device is recognised by its file's name, in any directory.
    #[test]
    fn devices_are_recognised_by_path() {
        for (path, device) in [
            ("/dev/nvidiactl", Some(Device::Control)),
            ("/tmp/stand-in/nvidiactl", Some(Device::Control)),
            ("nvidia0", Some(Device::Gpu(0))),
            ("/dev/nvidia15", Some(Device::Gpu(15))),
            ("/dev/nvidia-uvm", Some(Device::Uvm)),
            ("/dev/nvidia-uvm-tools", Some(Device::UvmTools)),
            ("/dev/nvidia-modeset", Some(Device::Modeset)),
            ("/dev/nvidia-caps/nvidia-cap1", Some(Device::Caps)),
            ("/dev/nvidia-caps-imex-channels/channel0", Some(Device::Caps)),
            ("/dev/nvidia-nvswitchctl", Some(Device::Nvswitch)),
            ("/dev/nvidia-nvlink", Some(Device::Other)),
            ("/dev/nvidia", None),
            ("/dev/nvidia+1", None),
            ("/dev/nvidia99999999999", None),
            ("/usr/bin/nvidia-smi/log.txt", None),
            ("/dev/null", None),
            ("", None),
        ] {
            assert_eq!(Device::from_path(path), device, "{path}");
        }
    }

    /// Check names as strace would show the requests, and requests without a name.
    #[test]
    fn requests_are_named() {
        // _IOWR('F', 0x2a, 32 bytes) and similar.
        assert_eq!(ioctl(Device::Control, 0xc020_462a), "NV_ESC_RM_CONTROL");
        assert_eq!(ioctl(Device::Gpu(3), 0xc038_464e), "NV_ESC_RM_MAP_MEMORY");
        assert_eq!(ioctl(Device::Control, 0xc048_46d2), "NV_ESC_CHECK_VERSION_STR");
        assert_eq!(ioctl(Device::Control, 0xc004_46ff), "NV_ESC 0xff");
        assert_eq!(ioctl(Device::Control, 0x5401), "ioctl 0x5401");
        assert_eq!(ioctl(Device::Uvm, 0x3000_0001), "UVM_INITIALIZE");
        assert_eq!(ioctl(Device::Uvm, 73), "UVM_CREATE_EXTERNAL_RANGE");
        assert_eq!(ioctl(Device::UvmTools, 56), "UVM_TOOLS_INIT_EVENT_TRACKER");
        assert_eq!(ioctl(Device::Uvm, 0x7fff), "UVM 0x7fff");
        assert_eq!(ioctl(Device::Modeset, 0xc010_6d00), "NVKMS_IOCTL_CMD");
        assert_eq!(ioctl(Device::Caps, 1), "ioctl 0x1");
    }

    /// Check one of each of the resource manager's own numbers.
    #[test]
    fn resource_manager_numbers_are_named() {
        assert_eq!(rm_class(0xcbc0), Some("HOPPER_COMPUTE_A"));
        assert_eq!(rm_class(0xffff_ffff), None);
        assert_eq!(rm_control(0x2080_0110), Some("NV2080_CTRL_CMD_GPU_GET_NAME_STRING"));
        assert_eq!(rm_control(0), None);
    }
}
