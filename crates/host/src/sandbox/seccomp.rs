//! System calls that no command in a sandbox may make. Knows numbers, not paths.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{SandboxNetworkAccess, SandboxPolicy};

/// Calls that reach into other processes, the kernel or the mount table.
const DENIED: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// Programs have another way for these, and take it if the kernel seems not to know them. The second
/// cannot be looked into, and could make what the filter on `clone` forbids.
const UNKNOWN: &[i64] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_clone3,
];

/// Flags of `clone` that make namespaces.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Requests that type into, or steer, a terminal.
const TERMINAL: &[u64] = &[0x5412, 0x541c];

/// On x86-64 every call has a second number.
#[cfg(target_arch = "x86_64")]
const SECOND_NUMBER: i64 = 0x4000_0000;

/// The filters to apply, in order.
pub(super) fn build_filters(policy: &SandboxPolicy) -> Result<Vec<BpfProgram>, String> {
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in DENIED {
        deny_syscall(&mut denied, *call, Vec::new());
    }
    for flag in NAMESPACES {
        let flag = u64::from(flag.unsigned_abs());
        deny_syscall(
            &mut denied,
            libc::SYS_clone,
            vec![argument_rule(0, SeccompCmpOp::MaskedEq(flag), flag)?],
        );
    }
    for request in TERMINAL {
        deny_syscall(
            &mut denied,
            libc::SYS_ioctl,
            vec![argument_rule(1, SeccompCmpOp::Eq, *request)?],
        );
    }
    let mut families = vec![libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG];
    if policy.no_sockets {
        families.push(libc::AF_UNIX);
    }
    if policy.network == SandboxNetworkAccess::None {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    for family in families {
        let family = u64::from(family.unsigned_abs());
        deny_syscall(
            &mut denied,
            libc::SYS_socket,
            vec![argument_rule(0, SeccompCmpOp::Eq, family)?],
        );
    }
    let mut unknown = BTreeMap::new();
    for call in UNKNOWN {
        deny_syscall(&mut unknown, *call, Vec::new());
    }
    [(denied, libc::EPERM), (unknown, libc::ENOSYS)]
        .into_iter()
        .map(|(rules, answer)| compile_filter(rules, answer.unsigned_abs()))
        .collect()
}

fn argument_rule(arg: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(|error| error.to_string())
}

fn deny_syscall(rules: &mut BTreeMap<i64, Vec<SeccompRule>>, call: i64, when: Vec<SeccompRule>) {
    rules.entry(call).or_default().extend(when.clone());
    #[cfg(target_arch = "x86_64")]
    rules.entry(call | SECOND_NUMBER).or_default().extend(when);
}

fn compile_filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    answer: u32,
) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(answer), arch)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())
}
