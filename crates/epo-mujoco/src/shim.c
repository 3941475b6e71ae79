// What epo needs of MuJoCo, as functions that Rust can declare by hand.
//
// The library is opened at run time, so a program starts without it and says clearly where it was looked for. MuJoCo's
// own headers check every type here; `raw.rs` declares the functions below for Rust.

#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mujoco/mujoco.h>

// every function of the library that is called
#define FUNCTIONS(X)                                                                              \
  X(mj_version) X(mju_setLogHandler)                                                              \
  X(mj_defaultVFS) X(mj_addBufferVFS) X(mj_deleteVFS) X(mj_loadXML)                               \
  X(mj_copyModel) X(mj_deleteModel) X(mj_makeData) X(mj_deleteData) X(mj_sizeModel)               \
  X(mj_name2id) X(mj_id2name) X(mj_setConst) X(mj_setTotalmass)                                   \
  X(mj_step) X(mj_step2) X(mj_forward) X(mj_rnePostConstraint) X(mj_normalizeQuat) X(mj_resetData)\
  X(mj_checkPos) X(mj_checkVel) X(mj_checkAcc) X(mj_objectVelocity) X(mj_local2Global)

#define FIELD(name) __typeof__(&name) name;
static struct { FUNCTIONS(FIELD) } mujoco;

// By itself MuJoCo prints warnings and writes them to MUJOCO_LOG.TXT. They are counted in the data, where
// epo_trouble finds them, so they are dropped here.
//
// After a fatal error MuJoCo cannot continue the call that it is in. GUARDED leaves that call by a jump, as MuJoCo's own
// Python package does. Only frames of C lie between: this file calls MuJoCo, and MuJoCo calls on_message. Outside of
// GUARDED the message is printed and the process ends with code 1.
static _Thread_local jmp_buf *landing;
static _Thread_local int out_of_memory;
static unsigned long fatal_errors;

static void on_message(const mjLogMessage *message) {
  if (message->level != mjLOG_ERROR) return;
  if (!landing) {
    fprintf(stderr, "error: MuJoCo cannot continue: %s\n", message->subject);
    exit(1);
  }
  fprintf(stderr, "warning: a fatal error of MuJoCo ends an episode: %s\n", message->subject);
  out_of_memory = strstr(message->subject, "memory") || strstr(message->subject, "arena");
  __atomic_add_fetch(&fatal_errors, 1, __ATOMIC_RELAXED);
  longjmp(*landing, 1);
}

// Runs `call`; after a fatal error in it, runs `otherwise` instead.
#define GUARDED(call, otherwise)  \
  do {                            \
    jmp_buf here;                 \
    landing = &here;              \
    if (setjmp(here) == 0) {      \
      call;                       \
      landing = NULL;             \
    } else {                      \
      landing = NULL;             \
      otherwise;                  \
    }                             \
  } while (0)

// Gives the data a valid state after a fatal error: the initial one, with the error noted for epo_trouble.
static void give_up(const mjModel *m, mjData *d) {
  mujoco.mj_resetData(m, d); // it also empties the arena and the stack that the error left behind
  d->warning[out_of_memory ? mjWARN_CNSTRFULL : mjWARN_BADQACC].number = 1;
}

// Number of fatal errors since the program began.
unsigned long epo_fatal_errors(void) { return __atomic_load_n(&fatal_errors, __ATOMIC_RELAXED); }

static void end_at_once(int code, void *unused) {
  (void)unused;
  fflush(NULL);
  _exit(code);
}

// From now on exit() ends the process before it runs the destructors of the libraries. Other threads may still be in a
// library then, which is an error once its destructors have run.
void epo_skip_destructors(void) { on_exit(end_at_once, NULL); }

// Opens the library. Returns NULL, or the reason why it cannot be used, valid until the next call.
const char *epo_open(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
#define LOAD(name)                                                      \
  *(void **)&mujoco.name = dlsym(library, #name);                       \
  if (!mujoco.name) return "it has no function " #name;
  FUNCTIONS(LOAD)
  if (mujoco.mj_version() != mjVERSION_HEADER) return "it is another version of MuJoCo";
  mujoco.mju_setLogHandler(on_message);
  return NULL;
}

// ---- building

mjModel *epo_compile(const char *xml, int length, char *error, int error_size) {
  mjVFS vfs;
  mujoco.mj_defaultVFS(&vfs);
  mjModel *model = NULL;
  if (mujoco.mj_addBufferVFS(&vfs, "model.xml", xml, length) == 0) {
    model = mujoco.mj_loadXML("model.xml", &vfs, error, error_size);
  } else {
    snprintf(error, error_size, "the text could not be passed to MuJoCo");
  }
  mujoco.mj_deleteVFS(&vfs);
  return model;
}
mjModel *epo_copy_model(const mjModel *m) {
  mjModel *volatile copy = NULL;
  GUARDED(copy = mujoco.mj_copyModel(NULL, m), copy = NULL);
  return copy;
}
void epo_delete_model(mjModel *m) { mujoco.mj_deleteModel(m); }
mjData *epo_make_data(const mjModel *m) {
  mjData *volatile data = NULL;
  GUARDED(data = mujoco.mj_makeData(m), data = NULL);
  return data;
}
void epo_delete_data(mjData *d) { mujoco.mj_deleteData(d); }
int epo_find_body(const mjModel *m, const char *name) { return mujoco.mj_name2id(m, mjOBJ_BODY, name); }
int epo_find_geom(const mjModel *m, const char *name) { return mujoco.mj_name2id(m, mjOBJ_GEOM, name); }
const char *epo_geom_name(const mjModel *m, int geom) { return mujoco.mj_id2name(m, mjOBJ_GEOM, geom); }
void epo_set_const(mjModel *m, mjData *d) { GUARDED(mujoco.mj_setConst(m, d), give_up(m, d)); }
void epo_set_total_mass(mjModel *m, double kilograms) { mujoco.mj_setTotalmass(m, kilograms); }
size_t epo_bytes(const mjModel *m, const mjData *d) {
  return (size_t)mujoco.mj_sizeModel(m) + (size_t)d->narena + (size_t)d->nbuffer + sizeof(mjData);
}
size_t epo_arena_used(const mjData *d) { return (size_t)d->maxuse_arena; }

// ---- stepping

void epo_step(const mjModel *m, mjData *d) { GUARDED(mujoco.mj_step(m, d), give_up(m, d)); }
void epo_step2(const mjModel *m, mjData *d) { GUARDED(mujoco.mj_step2(m, d), give_up(m, d)); }
void epo_forward(const mjModel *m, mjData *d) { GUARDED(mujoco.mj_forward(m, d), give_up(m, d)); }
void epo_rne_post_constraint(const mjModel *m, mjData *d) { GUARDED(mujoco.mj_rnePostConstraint(m, d), give_up(m, d)); }
void epo_normalize_quat(const mjModel *m, mjData *d) { mujoco.mj_normalizeQuat(m, d->qpos); }
void epo_reset(const mjModel *m, mjData *d) { mujoco.mj_resetData(m, d); }
void epo_check_state(const mjModel *m, mjData *d) { mujoco.mj_checkPos(m, d), mujoco.mj_checkVel(m, d); }
void epo_check_acceleration(const mjModel *m, mjData *d) { mujoco.mj_checkAcc(m, d); }

static void set_bit(int *flags, int bit, int on) { *flags = on ? *flags | bit : *flags & ~bit; }
void epo_set_sensors(mjModel *m, int on) { set_bit(&m->opt.disableflags, mjDSBL_SENSOR, !on); }
void epo_set_contacts(mjModel *m, int on) { set_bit(&m->opt.disableflags, mjDSBL_CONTACT, !on); }
void epo_set_sleep(mjModel *m, int on) { set_bit(&m->opt.enableflags, mjENBL_SLEEP, on); }

// 0: none, 1: the simulation diverged, 2: the arena was too small
int epo_trouble(const mjData *d) {
  const mjWarningStat *w = d->warning;
  if (w[mjWARN_BADQPOS].number || w[mjWARN_BADQVEL].number || w[mjWARN_BADQACC].number) return 1;
  return w[mjWARN_CONTACTFULL].number || w[mjWARN_CNSTRFULL].number ? 2 : 0;
}

// ---- readings

double epo_timestep(const mjModel *m) { return m->opt.timestep; }
double epo_time(const mjData *d) { return d->time; }
void epo_body_velocity(const mjModel *m, const mjData *d, int body, double velocity[6]) {
  mujoco.mj_objectVelocity(m, d, mjOBJ_XBODY, body, velocity, 0);
}
// world position of the centre of mass of a body
void epo_body_centre(const mjModel *m, mjData *d, int b, double pos[3]) {
  double mat[9];
  mujoco.mj_local2Global(d, pos, mat, m->body_ipos + 3 * b, m->body_iquat + 4 * b, b, m->body_sameframe[b]);
}
// world position of a geom of a body
void epo_geom_place(const mjModel *m, mjData *d, int b, int g, double pos[3]) {
  double mat[9];
  mujoco.mj_local2Global(d, pos, mat, m->geom_pos + 3 * g, m->geom_quat + 4 * g, b, m->geom_sameframe[g]);
}
int epo_n_contacts(const mjData *d) { return d->ncon; }
const int *epo_contact_geoms(const mjData *d, int i) { return d->contact[i].geom; }

// 0 to 3: free, ball, slide, hinge
int epo_joint_kind(const mjModel *m, int joint) {
  switch (m->jnt_type[joint]) {
    case mjJNT_FREE: return 0;
    case mjJNT_BALL: return 1;
    case mjJNT_SLIDE: return 2;
    default: return 3;
  }
}

// 0 to 5: plane, sphere, capsule, ellipsoid, cylinder, box; 6: another shape
int epo_geom_shape(const mjModel *m, int geom) {
  switch (m->geom_type[geom]) {
    case mjGEOM_PLANE: return 0;
    case mjGEOM_SPHERE: return 1;
    case mjGEOM_CAPSULE: return 2;
    case mjGEOM_ELLIPSOID: return 3;
    case mjGEOM_CYLINDER: return 4;
    case mjGEOM_BOX: return 5;
    default: return 6;
  }
}

// ---- sizes and arrays; the compiler checks each type against MuJoCo's headers

#define MODEL_SIZE(name) size_t epo_##name(const mjModel *m) { return (size_t)m->name; }
MODEL_SIZE(nq) MODEL_SIZE(nv) MODEL_SIZE(nu) MODEL_SIZE(nbody) MODEL_SIZE(ngeom) MODEL_SIZE(njnt)
MODEL_SIZE(ntree) MODEL_SIZE(nmocap) MODEL_SIZE(nsensordata)

#define MODEL(type, name) type *epo_##name(const mjModel *m) { return m->name; }
MODEL(double, qpos0) MODEL(double, qpos_spring) MODEL(double, dof_invweight0)
MODEL(double, body_pos) MODEL(double, body_quat) MODEL(double, body_mass)
MODEL(int, body_jntadr) MODEL(int, body_jntnum) MODEL(int, body_parentid) MODEL(int, body_treeid)
MODEL(int, body_dofadr) MODEL(int, body_dofnum) MODEL(int, body_geomadr) MODEL(int, body_geomnum)
MODEL(int, jnt_qposadr) MODEL(double, jnt_pos) MODEL(double, jnt_axis)
MODEL(int, geom_bodyid) MODEL(int, geom_contype) MODEL(int, geom_conaffinity)
MODEL(double, geom_rbound) MODEL(double, geom_margin) MODEL(double, geom_gap)
MODEL(double, geom_size) MODEL(double, geom_pos) MODEL(double, geom_quat) MODEL(float, geom_rgba)

#define DATA(type, name) type *epo_##name(const mjData *d) { return d->name; }
DATA(double, qpos) DATA(double, qvel) DATA(double, ctrl) DATA(double, mocap_pos) DATA(double, sensordata)
DATA(double, xpos) DATA(double, xquat) DATA(double, xmat) DATA(double, xipos) DATA(double, geom_xpos)
DATA(double, cinert) DATA(double, cvel) DATA(double, cfrc_ext) DATA(double, qfrc_actuator)
DATA(int, tree_asleep)
