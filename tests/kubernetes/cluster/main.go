// Command kubernetes is a control plane for tests, and kubectl, in one binary: its first argument is what to run.
//
// One binary is linked once instead of five times. Each component ends when its standard input does, so that none is
// left behind by a test run that was killed.
package main

import (
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Only the chosen component is constructed: each registers its version and feature gates for the whole process.
var components = map[string]func() *cobra.Command{
	"etcd":                    newEtcdCommand,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func newEtcdCommand() *cobra.Command {
	var folder string
	command := &cobra.Command{
		Use:          "etcd",
		Short:        "One member that listens on two sockets in its folder",
		SilenceUsage: true,
		RunE:         func(*cobra.Command, []string) error { return runEtcd(folder) },
	}
	command.Flags().StringVar(&folder, "folder", "", "where data and sockets are")
	return command
}

func runEtcd(folder string) error {
	config := embed.NewConfig()
	config.Dir = folder + "/data"
	config.LogLevel = "warn"
	// What it advertises stays the default, for one member asks nobody, and etcd 3.6 advertises no sockets.
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: folder + "/clients"}}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: folder + "/peers"}}
	// The data of a test does not outlive the machine: nothing waits for the disk.
	config.UnsafeNoFsync = true
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	return <-server.Err()
}

func endWithInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it as people know it from kubectl, and ends
	}
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	if name == "kubectl" {
		runKubectl()
		return
	}
	newCommand := components[name]
	if newCommand == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes kubectl|etcd|kube-apiserver|kube-controller-manager|kube-scheduler ...")
		os.Exit(2)
	}
	go endWithInput()
	os.Exit(cli.Run(newCommand()))
}
