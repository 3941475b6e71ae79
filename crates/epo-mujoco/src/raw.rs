//! The functions of `shim.c`, and their arrays as slices.
//!
//! [`Raw`] owns a model and its data. Both are made together and never replaced, so every array keeps its address and
//! its length for the life of a `Raw`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::NonNull;

use crate::{Error, library};

/// MuJoCo's `mjModel`, known to C only.
#[repr(C)]
pub(crate) struct Model {
    _opaque: [u8; 0],
}

/// MuJoCo's `mjData`, known to C only.
#[repr(C)]
pub(crate) struct Data {
    _opaque: [u8; 0],
}

type M = *mut Model;
type D = *mut Data;

unsafe extern "C" {
    fn epo_compile(xml: *const c_char, length: c_int, error: *mut c_char, error_size: c_int) -> M;
    fn epo_copy_model(m: M) -> M;
    fn epo_delete_model(m: M);
    fn epo_make_data(m: M) -> D;
    fn epo_delete_data(d: D);
    fn epo_find_body(m: M, name: *const c_char) -> c_int;
    fn epo_find_geom(m: M, name: *const c_char) -> c_int;
    fn epo_geom_name(m: M, geom: c_int) -> *const c_char;
    fn epo_set_const(m: M, d: D);
    fn epo_set_total_mass(m: M, kilograms: f64);
    fn epo_bytes(m: M, d: D) -> usize;
    fn epo_arena_used(d: D) -> usize;
    fn epo_step(m: M, d: D);
    fn epo_step2(m: M, d: D);
    fn epo_forward(m: M, d: D);
    fn epo_rne_post_constraint(m: M, d: D);
    fn epo_normalize_quat(m: M, d: D);
    fn epo_reset(m: M, d: D);
    fn epo_check_state(m: M, d: D);
    fn epo_check_acceleration(m: M, d: D);
    fn epo_set_sensors(m: M, on: c_int);
    fn epo_set_contacts(m: M, on: c_int);
    fn epo_set_sleep(m: M, on: c_int);
    fn epo_trouble(d: D) -> c_int;
    fn epo_timestep(m: M) -> f64;
    fn epo_time(d: D) -> f64;
    fn epo_body_velocity(m: M, d: D, body: c_int, velocity: *mut f64);
    fn epo_body_centre(m: M, d: D, body: c_int, pos: *mut f64);
    fn epo_geom_place(m: M, d: D, body: c_int, geom: c_int, pos: *mut f64);
    fn epo_n_contacts(d: D) -> c_int;
    fn epo_contact_geoms(d: D, i: c_int) -> *const [c_int; 2];
    fn epo_joint_kind(m: M, joint: c_int) -> c_int;
    fn epo_geom_shape(m: M, geom: c_int) -> c_int;
    fn epo_fatal_errors() -> std::ffi::c_ulong;
    fn epo_skip_destructors();
}

/// Lets the process end without the destructors of the libraries.
pub(crate) fn skip_destructors() {
    // SAFETY: it registers a function that ends the process.
    unsafe { epo_skip_destructors() }
}

/// Number of fatal errors inside MuJoCo since the program began.
pub(crate) fn fatal_errors() -> u64 {
    // SAFETY: it reads a counter.
    unsafe { epo_fatal_errors() }
}

/// A model and its data.
pub(crate) struct Raw {
    model: NonNull<Model>,
    data: NonNull<Data>,
}

// SAFETY: a `Raw` owns its model and its data, nothing else points to them, and MuJoCo keeps no state per thread.
unsafe impl Send for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: both were made by MuJoCo, are owned by `self` and are deleted once.
        unsafe {
            epo_delete_data(self.data.as_ptr());
            epo_delete_model(self.model.as_ptr());
        }
    }
}

/// Declares methods that call a function of the shim with the model, the data, or both.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($of:ident),+) $(-> $out:ty)? = $function:ident;)*) => {
        impl Raw {
            $($(#[$doc])* pub(crate) fn $name(&mut self) $(-> $out)? {
                // SAFETY: model and data are valid and belong together, and `&mut self` gives sole access.
                unsafe { $function($(self.$of.as_ptr()),+) }
            })*
        }
    };
}

calls! {
    step(model, data) = epo_step;
    step2(model, data) = epo_step2;
    forward(model, data) = epo_forward;
    rne_post_constraint(model, data) = epo_rne_post_constraint;
    normalize_quat(model, data) = epo_normalize_quat;
    reset(model, data) = epo_reset;
    check_state(model, data) = epo_check_state;
    check_acceleration(model, data) = epo_check_acceleration;
    set_const(model, data) = epo_set_const;
}

/// Declares the sizes of a model.
macro_rules! sizes {
    ($($name:ident = $function:ident;)*) => {
        unsafe extern "C" { $(fn $function(m: M) -> usize;)* }
        impl Raw {
            $(fn $name(&self) -> usize {
                // SAFETY: the model is valid; a size never changes.
                unsafe { $function(self.model.as_ptr()) }
            })*
            pub(crate) fn n_bodies(&self) -> usize {
                self.nbody()
            }
            pub(crate) fn n_geoms(&self) -> usize {
                self.ngeom()
            }
        }
    };
}

sizes! {
    nq = epo_nq;
    nv = epo_nv;
    nu = epo_nu;
    nbody = epo_nbody;
    ngeom = epo_ngeom;
    njnt = epo_njnt;
    ntree = epo_ntree;
    nmocap = epo_nmocap;
    nsensordata = epo_nsensordata;
}

/// Declares arrays of the model or the data: a reader and, if it is named, a writer.
macro_rules! arrays {
    ($($of:ident $pointer:ident { $($name:ident $(, $name_mut:ident)?: [$item:ty; $len:ident] = $function:ident;)* })*) => {
        $(
            unsafe extern "C" { $(fn $function(of: $pointer) -> *mut $item;)* }
            impl Raw {
                $(
                    #[allow(dead_code, reason = "some arrays are only written")]
                    pub(crate) fn $name(&self) -> &[$item] {
                        // SAFETY: MuJoCo's array has `$len` items, lives as long as `self`, and is not written while
                        // `self` is borrowed.
                        unsafe { slice($function(self.$of.as_ptr()), self.$len()) }
                    }
                    $(pub(crate) fn $name_mut(&mut self) -> &mut [$item] {
                        // SAFETY: as above, and `&mut self` gives sole access. Any number may be written: no size, index
                        // or address is among these arrays.
                        unsafe { slice_mut($function(self.$of.as_ptr()), self.$len()) }
                    })?
                )*
            }
        )*
    };
}

arrays! {
    model M {
        qpos0, qpos0_mut: [f64; nq] = epo_qpos0;
        qpos_spring, qpos_spring_mut: [f64; nq] = epo_qpos_spring;
        dof_invweight0: [f64; nv] = epo_dof_invweight0;
        body_pos, body_pos_mut: [[f64; 3]; nbody] = epo_body_pos;
        body_quat, body_quat_mut: [[f64; 4]; nbody] = epo_body_quat;
        body_mass: [f64; nbody] = epo_body_mass;
        body_jntadr: [c_int; nbody] = epo_body_jntadr;
        body_jntnum: [c_int; nbody] = epo_body_jntnum;
        body_parentid: [c_int; nbody] = epo_body_parentid;
        body_treeid: [c_int; nbody] = epo_body_treeid;
        body_dofadr: [c_int; nbody] = epo_body_dofadr;
        body_dofnum: [c_int; nbody] = epo_body_dofnum;
        body_geomadr: [c_int; nbody] = epo_body_geomadr;
        body_geomnum: [c_int; nbody] = epo_body_geomnum;
        jnt_qposadr: [c_int; njnt] = epo_jnt_qposadr;
        jnt_pos: [[f64; 3]; njnt] = epo_jnt_pos;
        jnt_axis: [[f64; 3]; njnt] = epo_jnt_axis;
        geom_bodyid: [c_int; ngeom] = epo_geom_bodyid;
        geom_contype: [c_int; ngeom] = epo_geom_contype;
        geom_conaffinity: [c_int; ngeom] = epo_geom_conaffinity;
        geom_rbound: [f64; ngeom] = epo_geom_rbound;
        geom_margin: [f64; ngeom] = epo_geom_margin;
        geom_gap: [f64; ngeom] = epo_geom_gap;
        geom_size: [[f64; 3]; ngeom] = epo_geom_size;
        geom_pos, geom_pos_mut: [[f64; 3]; ngeom] = epo_geom_pos;
        geom_quat, geom_quat_mut: [[f64; 4]; ngeom] = epo_geom_quat;
        geom_rgba: [[f32; 4]; ngeom] = epo_geom_rgba;
    }
    data D {
        qpos, qpos_mut: [f64; nq] = epo_qpos;
        qvel, qvel_mut: [f64; nv] = epo_qvel;
        ctrl, ctrl_mut: [f64; nu] = epo_ctrl;
        mocap_pos, mocap_pos_mut: [[f64; 3]; nmocap] = epo_mocap_pos;
        sensordata: [f64; nsensordata] = epo_sensordata;
        xpos, xpos_mut: [[f64; 3]; nbody] = epo_xpos;
        xquat: [[f64; 4]; nbody] = epo_xquat;
        xmat: [[f64; 9]; nbody] = epo_xmat;
        xipos, xipos_mut: [[f64; 3]; nbody] = epo_xipos;
        geom_xpos, geom_xpos_mut: [[f64; 3]; ngeom] = epo_geom_xpos;
        cinert: [[f64; 10]; nbody] = epo_cinert;
        cvel: [[f64; 6]; nbody] = epo_cvel;
        cfrc_ext: [[f64; 6]; nbody] = epo_cfrc_ext;
        qfrc_actuator: [f64; nv] = epo_qfrc_actuator;
        tree_asleep: [c_int; ntree] = epo_tree_asleep;
    }
}

/// Returns the slice of a C array. An empty array has no address.
unsafe fn slice<'a, T>(first: *mut T, len: usize) -> &'a [T] {
    // SAFETY: the caller promises `len` items at `first` that live long enough.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(first, len) } }
}

/// Does the same as [`slice`] for writing.
unsafe fn slice_mut<'a, T>(first: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: the caller promises `len` items at `first` that live long enough and that nobody else uses.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(first, len) } }
}

impl Raw {
    /// Compiles MJCF text.
    pub(crate) fn compile(xml: &str) -> Result<Self, Error> {
        library::open()?;
        let length = c_int::try_from(xml.len()).map_err(|_| Error::Compile("the text is too long".into()))?;
        let mut error = [0 as c_char; 1000];
        // SAFETY: text and buffer live for the call, and their lengths are given.
        let model =
            unsafe { epo_compile(xml.as_ptr().cast(), length, error.as_mut_ptr(), error.len() as c_int) };
        let Some(model) = NonNull::new(model) else {
            // SAFETY: MuJoCo ends its message with a zero within the buffer.
            let message = unsafe { CStr::from_ptr(error.as_ptr()) };
            return Err(Error::Compile(message.to_string_lossy().into_owned()));
        };
        Self::of_model(model)
    }

    /// A copy of the model with its own data, in its initial state.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        // SAFETY: the model is valid.
        let model = unsafe { epo_copy_model(self.model.as_ptr()) };
        Self::of_model(NonNull::new(model).ok_or(Error::Allocate)?)
    }

    /// Takes ownership of the model and makes its data.
    fn of_model(model: NonNull<Model>) -> Result<Self, Error> {
        // SAFETY: the model is valid and owned by this function.
        let data = unsafe { epo_make_data(model.as_ptr()) };
        match NonNull::new(data) {
            Some(data) => Ok(Self { model, data }),
            None => {
                // SAFETY: as above; nothing else has the model.
                unsafe { epo_delete_model(model.as_ptr()) };
                Err(Error::Allocate)
            }
        }
    }

    /// Index of a body.
    pub(crate) fn find_body(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: the model is valid, and the name ends with a zero.
        usize::try_from(unsafe { epo_find_body(self.model.as_ptr(), name.as_ptr()) }).ok()
    }

    /// Index of a geom.
    pub(crate) fn find_geom(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: the model is valid, and the name ends with a zero.
        usize::try_from(unsafe { epo_find_geom(self.model.as_ptr(), name.as_ptr()) }).ok()
    }

    /// Name of a geom; empty if it has none.
    pub(crate) fn geom_name(&self, geom: usize) -> String {
        // SAFETY: the model is valid. MuJoCo returns null or a text that lives as long as the model.
        let name = unsafe { epo_geom_name(self.model.as_ptr(), geom as c_int) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: not null, see above.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Number of the shape of a geom, see `shim.c`.
    pub(crate) fn geom_shape(&self, geom: usize) -> c_int {
        assert!(geom < self.ngeom(), "geom {geom} does not exist");
        // SAFETY: the model is valid, and the index was checked.
        unsafe { epo_geom_shape(self.model.as_ptr(), geom as c_int) }
    }

    pub(crate) fn set_total_mass(&mut self, kilograms: f64) {
        // SAFETY: the model is valid, and `&mut self` gives sole access.
        unsafe { epo_set_total_mass(self.model.as_ptr(), kilograms) }
    }

    pub(crate) fn set_sensors(&mut self, on: bool) {
        // SAFETY: as above.
        unsafe { epo_set_sensors(self.model.as_ptr(), on.into()) }
    }

    pub(crate) fn set_contacts(&mut self, on: bool) {
        // SAFETY: as above.
        unsafe { epo_set_contacts(self.model.as_ptr(), on.into()) }
    }

    pub(crate) fn set_sleep(&mut self, on: bool) {
        // SAFETY: as above.
        unsafe { epo_set_sleep(self.model.as_ptr(), on.into()) }
    }

    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: model and data are valid and only read.
        unsafe { epo_bytes(self.model.as_ptr(), self.data.as_ptr()) }
    }

    pub(crate) fn arena_used(&self) -> usize {
        // SAFETY: the data is valid and only read.
        unsafe { epo_arena_used(self.data.as_ptr()) }
    }

    /// 0: none, 1: diverged, 2: the arena was too small.
    pub(crate) fn trouble(&self) -> c_int {
        // SAFETY: as above.
        unsafe { epo_trouble(self.data.as_ptr()) }
    }

    pub(crate) fn timestep(&self) -> f64 {
        // SAFETY: the model is valid and only read.
        unsafe { epo_timestep(self.model.as_ptr()) }
    }

    pub(crate) fn time(&self) -> f64 {
        // SAFETY: the data is valid and only read.
        unsafe { epo_time(self.data.as_ptr()) }
    }

    /// Index in `qpos` of the free joint of a body, if it has one.
    pub(crate) fn free_joint(&self, body: usize) -> Option<usize> {
        let joint = usize::try_from(self.body_jntadr()[body]).ok()?;
        (self.joint_kind(joint) == 0).then(|| self.jnt_qposadr()[joint] as usize)
    }

    /// Number of the kind of a joint, see `shim.c`.
    pub(crate) fn joint_kind(&self, joint: usize) -> c_int {
        assert!(joint < self.njnt(), "joint {joint} does not exist");
        // SAFETY: the model is valid, and the index was checked.
        unsafe { epo_joint_kind(self.model.as_ptr(), joint as c_int) }
    }

    /// Velocity of a body's frame in world axes: angular, then linear.
    pub(crate) fn body_velocity(&self, body: usize) -> [f64; 6] {
        assert!(body < self.nbody(), "body {body} does not exist");
        let mut velocity = [0.0; 6];
        // SAFETY: model and data belong together, the index was checked, and six numbers are written.
        unsafe {
            epo_body_velocity(self.model.as_ptr(), self.data.as_ptr(), body as c_int, velocity.as_mut_ptr());
        }
        velocity
    }

    /// World position of the centre of mass of a body, from the present pose of its frame.
    pub(crate) fn body_centre(&mut self, body: usize) -> [f64; 3] {
        assert!(body < self.nbody(), "body {body} does not exist");
        let mut pos = [0.0; 3];
        // SAFETY: as in `body_velocity`, with three numbers.
        unsafe { epo_body_centre(self.model.as_ptr(), self.data.as_ptr(), body as c_int, pos.as_mut_ptr()) };
        pos
    }

    /// World position of a geom, from the present pose of the frame of its body.
    pub(crate) fn geom_place(&mut self, body: usize, geom: usize) -> [f64; 3] {
        assert!(body < self.nbody() && geom < self.ngeom(), "body {body} or geom {geom} does not exist");
        let mut pos = [0.0; 3];
        let (m, d) = (self.model.as_ptr(), self.data.as_ptr());
        // SAFETY: as in `body_centre`.
        unsafe { epo_geom_place(m, d, body as c_int, geom as c_int, pos.as_mut_ptr()) };
        pos
    }

    /// The two geoms of every contact. A geom of a flex, which has no index, never occurs in our models.
    pub(crate) fn contacts(&self) -> impl Iterator<Item = [c_int; 2]> + '_ {
        // SAFETY: the data is valid; contacts change only in calls that take `&mut self`.
        let n = unsafe { epo_n_contacts(self.data.as_ptr()) };
        // SAFETY: as above, and `i` is below the number of contacts.
        (0..n).map(|i| unsafe { *epo_contact_geoms(self.data.as_ptr(), i) })
    }
}
