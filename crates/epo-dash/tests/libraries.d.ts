// The libraries that the build fetches. They come without types.
declare module "*/echarts/index.js" {
  export const echarts: any;
}
declare const EpoThree: { THREE: any; OrbitControls: any };
declare const uPlot: any;
